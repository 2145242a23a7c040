//! Making restored disks durable, so that a power loss is not taken for the session's own work.
//!
//! A restore is not waited for until it is on the disk: that takes seconds, and until the session has worked on it there
//! is nothing in it that its snapshot does not have. But when the machine stops meanwhile, files are there that are cut or
//! empty, and saving them would replace the good snapshot. So it is noted when a restored disk has become durable. One
//! that had not when the machine stopped is listed as failed, and its session starts from the snapshot again.
//!
//! Linux only: elsewhere it is not known which start of the machine a sandbox belongs to, nor is there a call that waits
//! for a file system.

use std::fs::File;
use std::io;

use rustix::fs::{Mode, OFlags, openat};

use crate::boot::{BootDir, Mark};

/// Makes the disks of restored sandboxes durable and notes it, on a thread of its own that nobody waits for: it may take
/// as long as the slowest disk needs. What it does not come to, the next provider does.
pub(crate) fn make_durable(boots: Vec<BootDir>) {
    if boots.is_empty() || !cfg!(target_os = "linux") {
        return;
    }
    let work = move || {
        for boot in boots {
            match sync(&boot) {
                // Removed meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => {
                    tracing::warn!(sandbox = %boot.meta.id(), "its restored disk may not be durable: {error}");
                }
                Ok(()) => {}
            }
        }
    };
    if let Err(error) = std::thread::Builder::new().name("outpost-durable".into()).spawn(work) {
        tracing::warn!("restored disks are not made durable: {error}");
    }
}

/// Goes by the open directory, which may get another name meanwhile.
fn sync(boot: &BootDir) -> io::Result<()> {
    let dir = File::open(&boot.dir)?;
    #[cfg(target_os = "linux")]
    rustix::fs::syncfs(&dir)?;
    let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC;
    openat(&dir, Mark::Synced.file(), flags, Mode::RUSR | Mode::WUSR)?;
    dir.sync_all()
}
