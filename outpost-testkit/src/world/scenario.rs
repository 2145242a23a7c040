use std::fmt;
use std::time::Duration;

use fastrand::Rng;
use outpost_core::model::WorkerMode;
use outpost_core::ports::{AfterSave, Support};

use crate::fault::FaultPlan;
use crate::memory::{BackendOptions, Expiry};

/// Everything about a simulated world that its seed decides beforehand.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Scenario {
    /// The seed.
    pub seed: u64,
    /// How many orchestrators serve the outpost: odd seeds have two.
    pub orchestrators: usize,
    /// Who claims.
    pub mode: WorkerMode,
    /// The most sandboxes of one orchestrator.
    pub limit: usize,
    /// The most sessions that people have at once.
    pub sessions: usize,
    /// What the backend can do.
    pub backend: BackendOptions,
    /// What goes wrong.
    pub faults: FaultPlan,
    /// How long everybody is let loose.
    pub turmoil: Duration,
    /// Within how long everything must come to rest afterwards.
    pub calm: Duration,
}

impl Scenario {
    /// The scenario of a seed.
    #[must_use]
    pub fn from_seed(seed: u64) -> Self {
        let mut chance = Rng::with_seed(seed ^ 0x5EED_0F50_F0A1_1234);
        let orchestrators = if seed % 2 == 1 { 2 } else { 1 };
        let mode = match chance.u8(..6) {
            // The CLI claims by the outpost's acceptor, of which there is one.
            0 | 1 if orchestrators == 1 => WorkerMode::Cli,
            2 => WorkerMode::CliDirect,
            _ => WorkerMode::DevinRemote,
        };
        let backend = backend(&mut chance);
        let faults = match chance.u8(..8) {
            0 => FaultPlan::none(),
            1 => FaultPlan { crash: 0.02, ..FaultPlan::rough() },
            2 => FaultPlan { fail_after: 0.15, ..FaultPlan::rough() },
            _ => FaultPlan::rough(),
        };
        Self {
            seed,
            orchestrators,
            mode,
            limit: chance.usize(1..=4),
            sessions: chance.usize(1..=7),
            backend,
            faults,
            turmoil: Duration::from_secs(30 * 60),
            calm: Duration::from_secs(45 * 60),
        }
    }
}

fn backend(chance: &mut Rng) -> BackendOptions {
    let secs = |chance: &mut Rng, most: f64| Duration::from_secs_f64(chance.f64() * most);
    let mut options = BackendOptions {
        start_takes: secs(chance, 40.0),
        save_takes: secs(chance, 60.0),
        remove_takes: secs(chance, 20.0),
        term_takes: secs(chance, 5.0),
        ..BackendOptions::default()
    };
    match chance.u8(..4) {
        // As E2B is: short lives that are renewed, saving consumes, expiry saves.
        0 => {
            options.lifetime_limit = Some(Duration::from_secs(50 * 60));
            options.time_to_live = Some(Duration::from_secs(30 * 60));
            options.after_save = AfterSave::Consumed;
            options.expiry = Expiry::Snapshots;
        }
        // As Cloudflare's snapshots are.
        1 => options.delete_snapshots = Support::No,
        _ => {}
    }
    options
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}
