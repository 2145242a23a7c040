//! Starting a boot's supervisor, and through it the worker.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use outpost_core::model::{SUPERVISOR, WorkerProgram, WorkerSpec};
use outpost_core::ports::ErrorKind;
use outpost_provider_kit::{Cancel, During as _, Fault};
use secrecy::ExposeSecret as _;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

use crate::boot::BootDir;
use crate::settings::Settings;

/// As the supervisor's contract has it.
const END_OF_ENVIRONMENT: &str = "#end\n";

/// Puts the worker's executable into the boot's directory and answers what to call it by.
pub(crate) fn install_program(run: &Path, program: &WorkerProgram) -> Result<String, Fault> {
    match program {
        WorkerProgram::Installed { path } => Ok(path.clone()),
        WorkerProgram::File { path, .. } => {
            let name = path.file_name().ok_or_else(|| {
                Fault::new(ErrorKind::Invalid, format!("the worker's program {} has no name", path.display()))
            })?;
            let bin = run.join("bin");
            let inside = bin.join(name);
            let what = || format!("put the worker's program {} into the sandbox", path.display());
            fs::create_dir_all(&bin).during(what)?;
            copy(path, &inside).during(what)?;
            fs::set_permissions(&inside, fs::Permissions::from_mode(0o555)).during(what)?;
            Ok(inside.to_string_lossy().into_owned())
        }
        WorkerProgram::Fetch { .. } => {
            Err(Fault::new(ErrorKind::Unsupported, "the worker's program must be a file of this machine"))
        }
        _ => Err(Fault::new(ErrorKind::Unsupported, "this kind of program is not known here")),
    }
}

/// Copies a program, sharing its blocks where the file system can. A link would do with less, but a session that writes
/// into its program would change it for every later one.
///
/// Another process copies: a file that this one had open for writing could be inherited by whatever is forked meanwhile,
/// and cannot be executed until that has gone on to its own program (`ETXTBSY`).
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let mut cp = std::process::Command::new("cp");
    // Outpost's environment holds its tokens.
    cp.env_clear().envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
    let copied = cp.arg("--").args([from, to]).stdin(Stdio::null()).output()?;
    if copied.status.success() {
        return Ok(());
    }
    let why = String::from_utf8_lossy(&copied.stderr).trim().replace('\n', "; ");
    Err(io::Error::other(why))
}

/// Starts the supervisor and waits until it has started the worker. The worker's environment goes through a pipe; only
/// the worker reads it.
pub(crate) async fn launch(
    boot: &BootDir,
    worker: &WorkerSpec,
    program: &str,
    settings: &Settings,
    cancel: &Cancel,
) -> Result<(), Fault> {
    let script = boot.run().join("supervisor.sh");
    fs::write(&script, SUPERVISOR).during(|| "write the supervisor")?;
    let log = fs::OpenOptions::new().create(true).append(true).open(boot.run().join("log"));
    let log = log.during(|| "open the log")?;

    let mut child = Command::new(&settings.shell)
        .arg(&script)
        .args([boot.run(), workspace(boot)])
        .args([&boot.word(), "leave", program])
        .args(worker.arguments())
        .env_clear()
        .env("PATH", format!("{}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", settings.path))
        .env("OUTPOST_SHELL", &settings.shell)
        // So that it and its helpers are found before, and without, what it writes down.
        .env("TMPDIR", &boot.tmp)
        .current_dir(boot.run())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(log)
        // A signal that a terminal sends to Outpost's group must not end the sessions.
        .process_group(0)
        .spawn()
        .during(|| format!("start {}", settings.shell.display()))?;

    let environment = worker.environment(&boot.machine_env(settings)).to_shell();
    let input = child.stdin.take();
    // If the supervisor is gone, or reads no further, this fails or goes on for ever, and the loop below says so. Without
    // the last line no worker starts, so none ever has a part of its environment.
    let hand_over = async move {
        let Some(mut input) = input else { return };
        for text in [environment.expose_secret(), END_OF_ENVIRONMENT] {
            if input.write_all(text.as_bytes()).await.is_err() {
                return;
            }
        }
        let _ = input.shutdown().await;
    };
    tokio::pin!(hand_over);

    let deadline = Instant::now() + settings.launch_timeout;
    let mut pause = Duration::from_millis(1);
    let mut handed_over = false;
    loop {
        if handed_over && boot.is_launched()? {
            // Reaps it whenever it ends; when this process ends first, that is init's.
            tokio::spawn(async move { child.wait().await });
            return Ok(());
        }
        cancel.check()?;
        if let Some(status) = child.try_wait().during(|| "ask for the supervisor")?
            && !boot.is_launched()?
        {
            let why = format!("the supervisor ended before it started the worker: {status}");
            return Err(Fault::new(ErrorKind::Unexpected, why));
        }
        if Instant::now() >= deadline {
            return Err(Fault::new(ErrorKind::Unavailable, "the worker's process did not appear in time"));
        }
        tokio::select! {
            () = &mut hand_over, if !handed_over => handed_over = true,
            () = tokio::time::sleep(pause) => pause = (pause * 2).min(Duration::from_millis(20)),
        }
    }
}

fn workspace(boot: &BootDir) -> PathBuf {
    boot.disk().join("workspace")
}
