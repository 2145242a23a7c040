//! The contract that every provider keeps, played against this one with real processes.

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Weak};

use async_trait::async_trait;
use outpost_core::model::{InstanceId, SandboxId, SnapshotRef, WorkerProgram};
use outpost_core::ports::SandboxProvider;
use outpost_provider_process::ProcessProvider;
use outpost_testkit::conformance::provider::{Damage, Hindrance, ProviderFixture};
use outpost_testkit::conformance::{Skip, Task};
use support::{Desk, instance};

struct Fixture {
    desk: Desk,
    /// One process an instance has one provider, so whoever opens it again meanwhile gets the same.
    open: Mutex<Weak<ProcessProvider>>,
}

impl Fixture {
    fn new() -> Self {
        Self { desk: Desk::new(), open: Mutex::default() }
    }

    fn newest(&self, id: &SandboxId) -> PathBuf {
        self.desk.disk(id.session.as_str()).parent().unwrap().to_owned()
    }

    fn snapshot_file(&self, name: &str) -> PathBuf {
        self.desk.state().join("snapshots").join(name)
    }
}

#[async_trait]
impl ProviderFixture for Fixture {
    async fn open(&self) -> Arc<dyn SandboxProvider> {
        let mut open = self.open.lock().unwrap();
        let provider = open.upgrade().unwrap_or_else(|| Arc::new(self.desk.provider()));
        *open = Arc::downgrade(&provider);
        provider
    }

    async fn open_neighbour(&self) -> Result<Arc<dyn SandboxProvider>, Skip> {
        let neighbour = InstanceId::new("desk-2").unwrap();
        Ok(Arc::new(ProcessProvider::builder(self.desk.state(), neighbour).build().unwrap()))
    }

    async fn program(&self, task: &Task) -> WorkerProgram {
        self.desk.script(&task.to_sh("false"))
    }

    #[cfg(target_os = "linux")]
    async fn kill_worker(&self, id: &SandboxId) -> Result<(), Skip> {
        support::kill(self.desk.pid(id.session.as_str(), "worker"));
        Ok(())
    }

    #[cfg(target_os = "linux")]
    async fn processes(&self, mark: &str) -> Result<usize, Skip> {
        let marked = |pid: &i32| support::command_line(*pid).iter().any(|argument| argument == mark);
        Ok(self.desk.processes().iter().filter(|pid| marked(pid)).count())
    }

    #[cfg(target_os = "linux")]
    async fn search(&self, needle: &str) -> Result<Vec<String>, Skip> {
        Ok(self.desk.search(needle))
    }

    async fn leftovers(&self, id: &SandboxId) -> Result<Vec<String>, Skip> {
        let name = id.name(&instance());
        let places = [
            self.newest(id),
            self.desk.state().join("sandboxes").join(&name),
            self.desk.state().join("tmp").join(&name),
        ];
        let mut left: Vec<_> = places.into_iter().filter(|place| place.exists()).collect();
        for entry in fs::read_dir(self.desk.state().join("sandboxes")).unwrap() {
            let path = entry.unwrap().path();
            if path.file_name().is_some_and(|found| found.to_string_lossy().contains(&name)) {
                left.push(path);
            }
        }
        Ok(left.iter().map(|path| path.display().to_string()).collect())
    }

    async fn damage(&self, snapshot: &SnapshotRef, damage: Damage) -> Result<(), Skip> {
        let archive = self.snapshot_file(&format!("{snapshot}.tar.zst"));
        match damage {
            Damage::Missing => {
                fs::remove_file(self.snapshot_file(&format!("{snapshot}.json"))).unwrap();
                fs::remove_file(archive).unwrap();
            }
            Damage::Corrupt => support::flip_a_byte(&archive),
        }
        Ok(())
    }

    async fn hinder(&self, what: Hindrance) -> Result<(), Skip> {
        let state = self.desk.state();
        match what {
            Hindrance::List => {
                fs::rename(state.join("snapshots"), state.join("snapshots-away")).unwrap();
            }
            Hindrance::Start => {
                fs::rename(state.join("tmp"), state.join("tmp-away")).unwrap();
                fs::write(state.join("tmp"), "in the way").unwrap();
            }
            Hindrance::Save => {
                for sandbox in fs::read_dir(state.join("sandboxes")).unwrap() {
                    let meta = fs::read_to_string(sandbox.unwrap().path().join("meta.json")).unwrap();
                    let meta: serde_json::Value = serde_json::from_str(&meta).unwrap();
                    let id = support::id(meta["session"].as_str().unwrap(), meta["boot"].as_u64().unwrap());
                    let part = format!("{}.tar.zst.part", id.name(&instance()));
                    fs::create_dir_all(self.snapshot_file(&part)).unwrap();
                }
            }
        }
        Ok(())
    }

    async fn heal(&self) {
        let state = self.desk.state();
        if state.join("tmp-away").exists() {
            fs::remove_file(state.join("tmp")).unwrap();
            fs::rename(state.join("tmp-away"), state.join("tmp")).unwrap();
        }
        if state.join("snapshots-away").exists() {
            fs::rename(state.join("snapshots-away"), state.join("snapshots")).unwrap();
        }
        for entry in fs::read_dir(state.join("snapshots")).unwrap() {
            let path: PathBuf = entry.unwrap().path();
            if Path::is_dir(&path) {
                fs::remove_dir(path).unwrap();
            }
        }
    }

    async fn plant_console(&self, _id: &SandboxId) -> Result<(), Skip> {
        Err(Skip::because("this provider runs sessions only"))
    }

    fn network_probe(&self) -> Result<String, Skip> {
        Err(Skip::because("this provider cannot enforce a network policy"))
    }
}

outpost_testkit::provider_conformance!(Fixture::new());
