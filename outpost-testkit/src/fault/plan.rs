use std::time::Duration;

use outpost_core::ports::ErrorKind;

/// How often what goes wrong. Probabilities are for one call, in `0.0..=1.0`.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct FaultPlan {
    /// A call fails and does nothing.
    pub fail_before: f64,
    /// A call does its work, and its answer is lost.
    pub fail_after: f64,
    /// A call waits before it does anything, or before it answers.
    pub delay: f64,
    /// How long at the most.
    pub longest_delay: Duration,
    /// A list is answered with an older one.
    pub stale: f64,
    /// How old at the most.
    pub stale_for: Duration,
    /// The process dies in a call, before or after its effect.
    pub crash: f64,
    /// An error asks for a pause.
    pub retry_after: f64,
    /// How long at the most.
    pub longest_retry_after: Duration,
    /// The kinds of the errors. A queue's `claim` and `renew` never lie with the kinds that settle whose a session is.
    pub kinds: Vec<ErrorKind>,
    /// An item of a watch is lost with its connection; the watch asks for a list.
    pub cut: f64,
    /// A watch says nothing for a while, and what it had to say is lost.
    pub silence: f64,
    /// How long at the most.
    pub longest_silence: Duration,
    /// An item of a watch comes twice.
    pub repeat: f64,
}

impl FaultPlan {
    /// Nothing goes wrong.
    #[must_use]
    pub fn none() -> Self {
        Self {
            fail_before: 0.0,
            fail_after: 0.0,
            delay: 0.0,
            longest_delay: Duration::ZERO,
            stale: 0.0,
            stale_for: Duration::ZERO,
            crash: 0.0,
            retry_after: 0.0,
            longest_retry_after: Duration::ZERO,
            kinds: Vec::new(),
            cut: 0.0,
            silence: 0.0,
            longest_silence: Duration::ZERO,
            repeat: 0.0,
        }
    }

    /// Everything goes wrong now and then: about one call in ten.
    #[must_use]
    pub fn rough() -> Self {
        Self {
            fail_before: 0.03,
            fail_after: 0.03,
            delay: 0.05,
            longest_delay: Duration::from_secs(20),
            stale: 0.03,
            stale_for: Duration::from_secs(4),
            crash: 0.002,
            retry_after: 0.2,
            longest_retry_after: Duration::from_secs(30),
            kinds: ErrorKind::ALL.to_vec(),
            cut: 0.05,
            silence: 0.02,
            longest_silence: Duration::from_secs(300),
            repeat: 0.05,
        }
    }
}
