use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The outpost that a [`Fleet`](super::Fleet) has from the beginning.
pub const DEFAULT_OUTPOST: &str = "outpost_env-sim";

/// How a [`Fleet`](super::Fleet) behaves. Every field can be changed while it runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct FleetOptions {
    /// How long a claim promises a ready worker; about 300 s observed.
    pub claim_ttl: Duration,
    /// Rows on a page at most, whatever the client asked for.
    pub page_cap: u32,
    /// What the last page's cursor stands for.
    pub last_cursor: LastCursor,
    /// How long a released row that is suspended or terminated stays before it is swept;
    /// `None`: until [`sweep`](super::Fleet::sweep).
    pub sweep_after: Option<Duration>,
    /// How many events the watch can look back.
    pub history: usize,
    /// Where workers connect to; it comes with a successful claim.
    pub gateway_url: String,
    /// The spellings of the outposts endpoints that are served.
    pub spellings: Vec<Spelling>,
}

impl Default for FleetOptions {
    fn default() -> Self {
        Self {
            claim_ttl: Duration::from_secs(300),
            page_cap: 200,
            last_cursor: LastCursor::LastRow,
            sweep_after: None,
            history: 50_000,
            gateway_url: "http://127.0.0.1:9/gateway".to_owned(),
            spellings: vec![Spelling::Outposts, Spelling::Bare],
        }
    }
}

/// What the cursor of the last page stands for; both were observed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LastCursor {
    /// The last row of the page.
    LastRow,
    /// The server's clock at the time of the answer.
    ServerClock,
}

/// A spelling of the outposts endpoints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Spelling {
    /// `/outposts/outposts[/{id}]`, as documented.
    Outposts,
    /// `/outposts[/{id}]`, as public code of 2026 calls it.
    Bare,
    /// `/outposts/pools[/{id}]` of older deployments. Alone, rows say `pool_id` too.
    Pools,
}
