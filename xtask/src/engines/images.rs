//! The images of the tests, made of programs of this machine: no registry is asked.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::api::escape;
use super::{Engine, rootfs};
use crate::command::Cmd;
use crate::context::Context;
use crate::workspace::Workspace;

/// The label with the hash of what an image holds: one that is there already is known by it.
const CONTENT: &str = "dev.outpost.test-content";

#[derive(Debug)]
struct Image {
    repository: &'static str,
    tag: String,
    /// Besides a busybox.
    programs: &'static [&'static str],
    /// Its one variable.
    env: &'static str,
}

pub(super) fn make(context: &Context, engines: &[Engine]) -> Result<()> {
    let guard = Workspace::read(context)?.package("outpost-provider-docker")?.version.clone();
    let images = [
        Image {
            repository: "outpost-test/base",
            tag: "1".to_owned(),
            programs: &[],
            env: "PATH=/usr/local/bin:/bin",
        },
        // As provider-docker builds it of Debian's packages.
        Image {
            repository: "outpost-guard",
            tag: guard,
            programs: &["nft", "dnsmasq"],
            env: "PATH=/bin:/usr/sbin:/usr/bin:/sbin",
        },
    ];
    for image in &images {
        let (archive, content) = image.pack(context)?;
        for engine in engines {
            if image.is_in(context, engine, &content)? {
                continue;
            }
            eprintln!("{} gets the image {}", engine.kind.name(), image.name());
            image.import(context, engine, &archive, &content)?;
            let made = image.is_in(context, engine, &content)?;
            ensure!(made, "{} has taken {} and does not have it", engine.kind.name(), image.name());
        }
    }
    Ok(())
}

impl Image {
    fn name(&self) -> String {
        format!("{}:{}", self.repository, self.tag)
    }

    /// The archive of its files, and their hash.
    fn pack(&self, context: &Context) -> Result<(PathBuf, String)> {
        let dir = context.target.join("engines/images").join(self.repository.replace('/', "-"));
        fs::create_dir_all(&dir)?;
        let archive = dir.join("image.tar");
        rootfs::pack(context, &dir.join("root"), self.programs, &archive)?;
        let said = Cmd::new(context, "sha256sum").arg(&archive).read()?;
        let hash = said.split_whitespace().next().context("sha256sum says no hash")?;
        Ok((archive, hash.to_owned()))
    }

    fn is_in(&self, context: &Context, engine: &Engine, content: &str) -> Result<bool> {
        let found = engine.get(context, &format!("/images/{}/json", self.name()))?;
        Ok(found.is_some_and(|image| self.is(&image, content)))
    }

    fn is(&self, found: &Value, content: &str) -> bool {
        let env = found["Config"]["Env"].as_array();
        found["Config"]["Labels"][CONTENT] == content
            && env.is_some_and(|env| env.iter().any(|it| it == self.env))
    }

    fn import(&self, context: &Context, engine: &Engine, archive: &Path, content: &str) -> Result<()> {
        let changes = [format!("ENV {}", self.env), format!("LABEL {CONTENT}={content}")];
        let changes: String = changes.iter().map(|it| format!("&changes={}", escape(it))).collect();
        // Named afterwards: podman 4.3 names an import after the repository alone.
        let said = engine.post(context, &format!("/images/create?fromSrc=-{changes}"), Some(archive))?;
        let id = imported(&said).with_context(|| format!("the import says no image: {said}"))?;
        let (repository, tag) = (escape(self.repository), escape(&self.tag));
        engine.post(context, &format!("/images/{id}/tag?repo={repository}&tag={tag}"), None)?;
        Ok(())
    }
}

/// The id in the last line of an import's answer: `{"status":"sha256:…"}`.
fn imported(said: &str) -> Option<String> {
    let last: Value = serde_json::from_str(said.lines().rfind(|line| !line.trim().is_empty())?).ok()?;
    Some(last["status"].as_str()?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_image_is_kept_only_while_its_content_and_its_environment_are_right() {
        let image = Image { repository: "a", tag: "1".to_owned(), programs: &[], env: "PATH=/bin" };
        let found =
            |env: &str, content: &str| json!({"Config": {"Env": [env], "Labels": {CONTENT: content}}});
        assert!(image.is(&found("PATH=/bin", "abc"), "abc"));
        assert!(!image.is(&found("PATH=/bin", "abc"), "abd"));
        assert!(!image.is(&found("PATH=/sbin", "abc"), "abc"));
        assert!(!image.is(&json!({"Config": {"Env": ["PATH=/bin"], "Labels": null}}), "abc"));
    }

    #[test]
    fn an_imports_answer_names_the_image() {
        assert_eq!(imported("{\"status\":\"sha256:12\"}\r\n").as_deref(), Some("sha256:12"));
        assert_eq!(
            imported("{\"progress\":\"\"}\n{\"status\":\"sha256:12\\n\"}\n").as_deref(),
            Some("sha256:12")
        );
        assert_eq!(imported("{\"errorDetail\":{}}\n"), None);
        assert_eq!(imported(""), None);
    }
}
