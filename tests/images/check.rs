//! The one test of every worker image.

use crate::Engine;
use crate::engine::Rights;

/// Says whether a machine is what a session needs; see its head.
pub(crate) const SCRIPT: &str = include_str!("../../images/check.sh");

/// What an image promises.
#[derive(Debug)]
pub(crate) struct Promised {
    /// Whom sessions run as.
    pub(crate) user: &'static str,
    /// The checks of the script that hold for it.
    pub(crate) checks: &'static [&'static str],
}

/// Everything that a session of any kind can use.
pub(crate) const FULL: Promised =
    Promised { user: "devin", checks: &["cli", "git", "ffmpeg", "browser", "workspace", "supervisor"] };

/// Checks an image as a session finds it: as its own user, in its own working directory, with no more rights than Outpost gives.
///
/// Credentials are [another matter](crate::scan), because one must be known to be looked for.
pub(crate) async fn check_worker_image(engine: &Engine, image: &str, promised: &Promised) {
    let config = engine.config(image).await;
    assert_eq!(config.user.as_deref(), Some(promised.user));
    assert_eq!(config.working_dir.as_deref(), Some("/mnt/repos"));
    // What lies in a volume is in no snapshot.
    assert!(config.volumes.unwrap_or_default().is_empty(), "a worker image has no volumes");

    let mut command = vec!["/bin/sh", "-c", SCRIPT, "check.sh"];
    command.extend(promised.checks);
    let ended = engine.run(image, Rights::Session, &command).await;
    assert_eq!(ended.code, 0, "{}", ended.output);
    let passed: Vec<&str> =
        ended.output.lines().filter_map(|line| line.strip_prefix("ok ")?.split(':').next()).collect();
    assert_eq!(passed, promised.checks, "{}", ended.output);
}
