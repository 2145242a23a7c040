//! One process an instance and state directory.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::layout::Layout;
use crate::settings::BuildError;

/// An earlier provider of this process lets go when its last task has; a process that was just forked, when it has
/// become another program.
const WAIT: Duration = Duration::from_secs(2);

/// Takes the instance's lock, which ends with the file that is returned, and writes this process's id into it.
pub(crate) fn take(layout: &Layout, state_dir: &Path) -> Result<File, BuildError> {
    let unusable = |what: &str, error: std::io::Error| BuildError::Unusable {
        path: state_dir.to_owned(),
        why: format!("{what}: {error}"),
    };
    let path = layout.lock_file();
    let open = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(&path);
    let mut file = open.map_err(|error| unusable("open its lock", error))?;
    let deadline = Instant::now() + WAIT;
    loop {
        match file.try_lock() {
            Ok(()) => break,
            Err(TryLockError::WouldBlock) if Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(10));
            }
            Err(TryLockError::WouldBlock) => {
                let mut holder = String::new();
                let _ = file.read_to_string(&mut holder);
                let holder = holder.trim();
                return Err(BuildError::Locked {
                    path: state_dir.to_owned(),
                    instance: layout.instance().clone(),
                    holder: if holder.is_empty() { "unknown".to_owned() } else { holder.to_owned() },
                });
            }
            Err(TryLockError::Error(error)) => return Err(unusable("lock it", error)),
        }
    }
    let note = (|| {
        file.set_len(0)?;
        file.rewind()?;
        writeln!(file, "{}", std::process::id())
    })();
    note.map_err(|error| unusable("write its lock", error))?;
    Ok(file)
}
