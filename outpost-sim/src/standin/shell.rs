//! A session's command, run in the background by a real shell.

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

const OUTPUT_BYTES: usize = 64 * 1024;
const LOOK: Duration = Duration::from_millis(10);
/// How long the output of a command that has ended may still come: its children can hold the pipe.
const LINGER: Duration = Duration::from_millis(200);

/// The command that runs now, if any.
#[derive(Debug, Clone, Default)]
pub(super) struct Shell {
    child: Arc<Mutex<Option<Child>>>,
}

/// How a command ended.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) code: Option<i32>,
    pub(super) output: String,
}

impl Shell {
    /// Starts a command in the working directory; `done` is called on another thread when it ends.
    pub(super) fn start(&self, command: &str, done: impl FnOnce(Outcome) + Send + 'static) {
        let (child, output) = match spawn(command) {
            Ok(started) => started,
            Err(error) => return done(Outcome { code: Some(127), output: error.to_string() }),
        };
        *self.child.lock().unwrap_or_else(PoisonError::into_inner) = Some(child);
        let shell = self.clone();
        thread::spawn(move || {
            let code = shell.wait();
            done(Outcome { code, output: output.finish() });
        });
    }

    /// Ends the command that runs; what it started itself is left to whoever ends the process group.
    pub(super) fn kill(&self) {
        if let Some(child) = self.child.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
            // It may have ended meanwhile.
            let _ = child.kill();
        }
    }

    fn wait(&self) -> Option<i32> {
        loop {
            let mut slot = self.child.lock().unwrap_or_else(PoisonError::into_inner);
            let ended = slot.as_mut().map_or(Ok(None), Child::try_wait);
            match ended {
                Ok(Some(status)) => {
                    *slot = None;
                    return status.code();
                }
                Ok(None) => {}
                Err(_) => return None,
            }
            drop(slot);
            thread::sleep(LOOK);
        }
    }
}

struct Output {
    reader: JoinHandle<()>,
    seen: Arc<Mutex<Vec<u8>>>,
}

impl Output {
    fn finish(self) -> String {
        let until = Instant::now() + LINGER;
        while !self.reader.is_finished() && Instant::now() < until {
            thread::sleep(LOOK);
        }
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&seen).into_owned()
    }
}

fn spawn(command: &str) -> std::io::Result<(Child, Output)> {
    let (mut reader, writer) = std::io::pipe()?;
    let child = Command::new("/bin/sh")
        .arg("-c")
        .arg(command)
        .stdin(Stdio::null())
        .stdout(writer.try_clone()?)
        .stderr(writer)
        .spawn()?;
    let seen = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&seen);
    let reader = thread::spawn(move || {
        let mut chunk = [0; 8192];
        while let Ok(length @ 1..) = reader.read(&mut chunk) {
            let mut seen = sink.lock().unwrap_or_else(PoisonError::into_inner);
            let room = OUTPUT_BYTES - seen.len();
            seen.extend_from_slice(&chunk[..length.min(room)]);
        }
    });
    Ok((child, Output { reader, seen }))
}
