//! The repository stands by itself: it names nothing of the place where it was written, holds no secret, and what
//! its papers point at is there.

mod commands;
mod markdown;
mod papers;
mod traces;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use crate::command::Cmd;
use crate::context::Context;
use crate::workspace::Workspace;

/// One text file of the repository.
#[derive(Debug)]
struct File {
    /// From the workspace's folder.
    path: PathBuf,
    text: String,
}

pub(super) fn run(context: &Context) -> Result<()> {
    let files = files(context)?;
    let workspace = Workspace::read(context)?;
    let place = traces::Place::here(&context.root);
    let mut wrong = Vec::new();
    for file in &files {
        let mut say = |findings: Vec<String>| {
            wrong.extend(findings.into_iter().map(|finding| format!("{}: {finding}", file.path.display())));
        };
        say(place.traces(file));
        say(papers::dead_mentions(&context.root, file));
        if is_markdown(&file.path) {
            say(papers::dead_links(&context.root, file));
            say(papers::dead_paths(&files, file));
            say(commands::unknown(&workspace, &file.text));
        }
    }
    wrong.extend(papers::sizes(&files));
    if wrong.is_empty() {
        eprintln!("{} files stand by themselves", files.len());
        return Ok(());
    }
    wrong.iter().for_each(|finding| eprintln!("{finding}"));
    bail!("{} findings, the first: {}", wrong.len(), wrong[0])
}

fn is_markdown(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "md")
}

/// What is in the repository, or would be with the next commit.
fn files(context: &Context) -> Result<Vec<File>> {
    let listed = Cmd::new(context, "git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .read()
        .context("the checks of the repository need git")?;
    let mut files = Vec::new();
    for path in listed.split('\0').filter(|path| !path.is_empty()).map(PathBuf::from) {
        // A deleted file may still be listed, and pictures are not text.
        if let Ok(text) = fs::read_to_string(context.root.join(&path)) {
            files.push(File { path, text });
        }
    }
    Ok(files)
}
