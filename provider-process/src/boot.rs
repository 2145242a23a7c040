//! One boot's directory: its paths, and what its files and processes say of it.

use std::fs;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use outpost_core::model::{MachineEnv, Sandbox, SandboxId, SandboxState, WorkerEnding};
use outpost_provider_kit::{During as _, Fault};

use crate::layout::{Layout, private_dir};
use crate::meta::SandboxMeta;
use crate::processes::{Marks, Recorded, machine_boot};
use crate::settings::Settings;
use crate::small::{Small, read_small};

/// Why a sandbox is listed as failed.
const TORN: &str = "the machine stopped before its restored disk was durable; its snapshot is whole";

/// What has happened to a sandbox, as far as its processes cannot tell: an empty file beside its `meta.json`. A name is
/// there or not, also after a kill, and takes no room on a full disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mark {
    /// Its supervisor was, or is just being, started.
    Launched,
    /// KILL is needed to end its processes.
    Killed,
    /// It is being removed.
    Removing,
    /// What it was restored from has reached the disk.
    Synced,
}

impl Mark {
    pub(crate) const fn file(self) -> &'static str {
        match self {
            Self::Launched => "launched",
            Self::Killed => "killed",
            Self::Removing => "removing",
            Self::Synced => "synced",
        }
    }
}

/// What is at a place where a sandbox can be.
#[derive(Debug)]
pub(crate) enum Place {
    Free,
    Sandbox(BootDir),
    Damaged(Damaged),
}

/// A directory that is a sandbox's by its name and whose `meta.json` cannot be made out.
#[derive(Debug)]
pub(crate) struct Damaged {
    pub(crate) dir: PathBuf,
    pub(crate) why: String,
}

/// A sandbox on disk.
#[derive(Debug, Clone)]
pub(crate) struct BootDir {
    pub(crate) meta: SandboxMeta,
    pub(crate) dir: PathBuf,
    pub(crate) tmp: PathBuf,
}

impl BootDir {
    /// Finds a sandbox: at its session's place, or aside when a newer boot has that.
    pub(crate) fn find(layout: &Layout, id: &SandboxId) -> Result<Option<Self>, Fault> {
        for dir in [layout.newest(&id.session), layout.displaced(id)] {
            if let Place::Sandbox(boot) = Self::at(layout, dir)?
                && boot.meta.id() == *id
            {
                return Ok(Some(boot));
            }
        }
        Ok(None)
    }

    /// Looks at a place where a sandbox can be.
    pub(crate) fn at(layout: &Layout, dir: PathBuf) -> Result<Place, Fault> {
        let why = match SandboxMeta::read(&dir)? {
            Ok(Some(meta)) => {
                let id = meta.id();
                let belongs = dir == layout.newest(&meta.session) || dir == layout.displaced(&id);
                if belongs && meta.instance == *layout.instance() {
                    return Ok(Place::Sandbox(Self { tmp: layout.tmp(&id), meta, dir }));
                }
                "it speaks of another sandbox".to_owned()
            }
            Ok(None) if fs::symlink_metadata(&dir).is_err() => return Ok(Place::Free),
            Ok(None) => "it is missing".to_owned(),
            Err(why) => why,
        };
        Ok(Place::Damaged(Damaged { dir, why }))
    }

    /// Makes the directories that a sandbox without a snapshot has, and those of a boot with one.
    pub(crate) fn make_dirs(dir: &Path) -> Result<(), Fault> {
        for part in ["disk/home", "disk/workspace/repos", "disk/state", "run"] {
            private_dir(&dir.join(part)).during(|| format!("make {part} of the sandbox"))?;
        }
        Ok(())
    }

    pub(crate) fn run(&self) -> PathBuf {
        self.dir.join("run")
    }

    pub(crate) fn disk(&self) -> PathBuf {
        self.dir.join("disk")
    }

    /// Notes what is about to happen.
    pub(crate) fn mark(&self, mark: Mark) -> Result<(), Fault> {
        let path = self.dir.join(mark.file());
        let made = fs::OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path);
        made.map(drop).during(|| format!("note that it is {}", mark.file()))
    }

    /// Whether that has begun.
    pub(crate) fn has(&self, mark: Mark) -> Result<bool, Fault> {
        self.dir.join(mark.file()).try_exists().during(|| format!("see whether it is {}", mark.file()))
    }

    /// How its worker ended, if it has.
    pub(crate) fn ending(&self) -> Result<WorkerEnding, Fault> {
        Ok(if self.has(Mark::Killed)? { WorkerEnding::Forced } else { WorkerEnding::Clean })
    }

    /// The word that begins the files of this boot's supervisor.
    pub(crate) fn word(&self) -> String {
        format!("boot-{}", self.meta.boot)
    }

    /// The machine's part of the worker's environment.
    pub(crate) fn machine_env(&self, settings: &Settings) -> MachineEnv {
        let text = |path: PathBuf| path.to_string_lossy().into_owned();
        let user = nix::unistd::User::from_uid(nix::unistd::getuid()).ok().flatten();
        let mut machine = MachineEnv::default();
        machine.home = text(self.disk().join("home"));
        machine.user = user.map_or_else(|| nix::unistd::getuid().to_string(), |user| user.name);
        machine.path = settings.path.clone();
        machine.tmpdir = text(self.tmp.clone());
        machine.lang = settings.lang.clone();
        machine.state_dir = text(self.disk().join("state"));
        machine.more = settings.machine_env.clone();
        machine
    }

    /// By what its processes are known.
    pub(crate) fn marks(&self) -> Result<Marks, Fault> {
        let same_machine_boot = self.meta.machine_boot == machine_boot();
        let known = |file| Ok::<_, Fault>(self.recorded(file)?.filter(|_| same_machine_boot));
        // A worker whose end is written down is dead, whoever has its number now.
        let ended = self.exit_code()?.is_some();
        Ok(Marks {
            supervisor: known("supervisor")?,
            worker: known("worker")?.filter(|worker| worker.is_certain() || !ended),
            tmp: self.tmp.clone(),
            dir: self.dir.clone(),
        })
    }

    /// Whether the supervisor has said that it started the worker.
    pub(crate) fn is_launched(&self) -> Result<bool, Fault> {
        Ok(self.recorded("worker")?.is_some())
    }

    /// What it is listed as.
    pub(crate) fn sandbox(&self) -> Result<Sandbox, Fault> {
        Ok(Sandbox {
            id: self.meta.id(),
            state: self.state()?,
            started_at: self.meta.started_at,
            expires_at: None,
            restored_from: self.meta.restored_from.clone(),
        })
    }

    /// What has become of it.
    pub(crate) fn state(&self) -> Result<SandboxState, Fault> {
        if self.has(Mark::Removing)? {
            return Ok(SandboxState::Stopping);
        }
        if !self.has(Mark::Launched)? {
            return Ok(SandboxState::Starting);
        }
        if self.is_torn()? {
            return Ok(SandboxState::Failed { why: TORN.to_owned() });
        }
        // Whatever the worker's number says: it may have passed to another process.
        if let Some(code) = self.exit_code()? {
            return Ok(SandboxState::Exited { code: Some(code) });
        }
        let marks = self.marks()?;
        if marks.worker.as_ref().is_some_and(Recorded::is_alive) {
            return Ok(SandboxState::Running);
        }
        let supervised = marks.supervisor.as_ref().is_some_and(Recorded::is_alive);
        // Again after the look at the processes: a supervisor writes it down before it goes.
        if let Some(code) = self.exit_code()? {
            return Ok(SandboxState::Exited { code: Some(code) });
        }
        Ok(match (marks.worker.is_some(), supervised) {
            (true, true) => SandboxState::Running,
            (false, true) => SandboxState::Starting,
            (_, false) => SandboxState::Exited { code: None },
        })
    }

    /// Whether the machine stopped before what was restored had reached the disk.
    fn is_torn(&self) -> Result<bool, Fault> {
        let other_machine_boot = self.meta.machine_boot != machine_boot();
        Ok(self.meta.restored_from.is_some() && other_machine_boot && !self.has(Mark::Synced)?)
    }

    /// Whether what it was restored from has yet to reach the disk, and this start of the machine has it in memory.
    pub(crate) fn awaits_durability(&self) -> Result<bool, Fault> {
        let same_machine_boot = self.meta.machine_boot == machine_boot();
        Ok(self.meta.restored_from.is_some() && same_machine_boot && !self.has(Mark::Synced)?)
    }

    fn exit_code(&self) -> Result<Option<i32>, Fault> {
        Ok(self.words("exit")?.and_then(|words| words.first()?.parse().ok()))
    }

    fn recorded(&self, file: &str) -> Result<Option<Recorded>, Fault> {
        Ok(self.words(file)?.and_then(|words| {
            let [pid, started] = words.as_slice() else { return None };
            Some(Recorded { pid: pid.parse().ok()?, started: started.clone() })
        }))
    }

    /// The words of a file of the supervisor's after the one that names the boot; `None` when there is no file, or one
    /// of another boot.
    fn words(&self, file: &str) -> Result<Option<Vec<String>>, Fault> {
        let path = self.run().join(file);
        let read = read_small(&path).during(|| format!("read {}", path.display()))?;
        // What the session has damaged it does without.
        let Small::Text(text) = read else { return Ok(None) };
        let mut words = text.split_whitespace().map(str::to_owned);
        Ok((words.next() == Some(self.word())).then(|| words.collect()))
    }
}

/// Every sandbox of the instance, and what is damaged.
pub(crate) fn all(layout: &Layout) -> Result<(Vec<BootDir>, Vec<Damaged>), Fault> {
    let (mut boots, mut damaged) = (Vec::new(), Vec::new());
    for name in names_in(&layout.sandboxes())? {
        if !layout.owns_directory(&name) {
            continue;
        }
        match BootDir::at(layout, layout.sandboxes().join(&name))? {
            Place::Sandbox(boot) => boots.push(boot),
            Place::Damaged(it) => damaged.push(it),
            Place::Free => {}
        }
    }
    Ok((boots, damaged))
}

/// The names in a directory that are UTF-8: all of ours are.
pub(crate) fn names_in(dir: &Path) -> Result<Vec<String>, Fault> {
    let what = || format!("list {}", dir.display());
    let mut names = Vec::new();
    for entry in fs::read_dir(dir).during(what)? {
        if let Ok(name) = entry.during(what)?.file_name().into_string() {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}
