use jiff::Timestamp;
use secrecy::ExposeSecret;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::event::EventKind;
use super::fleet::Fleet;
use super::refusal::Refusal;

/// Who holds a row.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Claim {
    /// The holder.
    pub acceptor_id: String,
    /// Until when.
    pub deadline: Timestamp,
}

/// One attempt at a claim, for assertions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ClaimRecord {
    /// When.
    pub at: Timestamp,
    /// Whose row.
    pub session_id: String,
    /// Who asked.
    pub acceptor_id: String,
    /// How it ended.
    pub outcome: ClaimOutcome,
}

/// How a claim ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ClaimOutcome {
    /// The row was free, or its claim had expired.
    Won,
    /// The same acceptor asked again.
    Renewed,
    /// Another holds it: 409.
    Lost,
    /// The holder gave it back.
    Released,
    /// The deadline passed and the row went back to the queue.
    Expired,
}

/// Whether a connect token is the last one that was issued for its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Freshness {
    /// The newest.
    Newest,
    /// An older one; it still works, as a token outlives its claim.
    Older,
}

impl Fleet {
    /// Claims a row, or renews the claim when it is the same acceptor's.
    ///
    /// The answer is the entry with a new `connect_token` and the `gateway_url`. As the real queue does,
    /// it accepts claims of suspended and terminated rows: not to ask is the client's duty.
    ///
    /// # Errors
    ///
    /// [`Refusal::NotFound`], [`Refusal::Conflict`] when another holds it, [`Refusal::Invalid`] for an
    /// empty acceptor.
    pub fn claim(&mut self, now: Timestamp, session_id: &str, acceptor_id: &str) -> Result<Value, Refusal> {
        self.settle_due(now);
        self.expire(now, session_id);
        if acceptor_id.is_empty() {
            return Err(Refusal::invalid("acceptor_id", "must not be empty"));
        }
        let deadline = now + self.options.claim_ttl;
        let row = self.rows.get(session_id).ok_or_else(|| not_found(session_id))?;
        let outcome = match &row.claim {
            None => ClaimOutcome::Won,
            Some(claim) if claim.acceptor_id == acceptor_id => ClaimOutcome::Renewed,
            Some(_) => ClaimOutcome::Lost,
        };
        self.note(now, session_id, acceptor_id, outcome);
        if outcome == ClaimOutcome::Lost {
            return Err(Refusal::Conflict("claimed by another acceptor".to_owned()));
        }
        let claim = Claim { acceptor_id: acceptor_id.to_owned(), deadline };
        self.change(now, session_id, EventKind::Modified, |row| row.claim = Some(claim));
        let token = self.issue_token(session_id);
        let gateway = self.options.gateway_url.clone();
        let field = self.outpost_field();
        Ok(self.rows[session_id].render_with(field, Some((&token, &gateway))))
    }

    /// Gives a claim back. The row stays, as `pending`, until it is swept or claimed.
    ///
    /// # Errors
    ///
    /// [`Refusal::NotFound`] when tombstoned, [`Refusal::Conflict`] when not claimed by this acceptor
    /// (any more).
    pub fn release(&mut self, now: Timestamp, session_id: &str, acceptor_id: &str) -> Result<Value, Refusal> {
        self.settle_due(now);
        self.expire(now, session_id);
        let row = self.rows.get(session_id).ok_or_else(|| not_found(session_id))?;
        if row.claim.as_ref().is_none_or(|claim| claim.acceptor_id != acceptor_id) {
            return Err(Refusal::Conflict("not claimed by this acceptor".to_owned()));
        }
        self.note(now, session_id, acceptor_id, ClaimOutcome::Released);
        self.change(now, session_id, EventKind::Modified, |row| row.claim = None);
        let field = self.outpost_field();
        Ok(self.rows[session_id].render(field))
    }

    /// Takes an expired claim back, unless the session runs. Called when a row is touched and never by
    /// the passing of time alone, which is what "lazily" means.
    pub(crate) fn expire(&mut self, now: Timestamp, session_id: &str) {
        let Some(row) = self.rows.get(session_id) else { return };
        let Some(claim) = &row.claim else { return };
        if claim.deadline > now || row.spec.session_status == "running" {
            return;
        }
        let acceptor = claim.acceptor_id.clone();
        self.note(now, session_id, &acceptor, ClaimOutcome::Expired);
        self.change(now, session_id, EventKind::Modified, |row| row.claim = None);
    }

    /// Every claim, renewal, release and expiry so far, oldest first.
    #[must_use]
    pub fn claim_history(&self) -> &[ClaimRecord] {
        &self.claims
    }

    /// Whether `token` was issued for this session, and whether it is the newest; `None` when it was not.
    #[must_use]
    pub fn check_token(&self, session_id: &str, token: &str) -> Option<Freshness> {
        let tokens = self.tokens.get(session_id)?;
        let place = tokens.iter().position(|known| known.expose_secret() == token)?;
        Some(if place + 1 == tokens.len() { Freshness::Newest } else { Freshness::Older })
    }

    fn issue_token(&mut self, session_id: &str) -> String {
        self.issued += 1;
        let digest = Sha256::digest(format!("{session_id} {}", self.issued));
        let token = digest.iter().take(20).fold("dct_".to_owned(), |text, byte| format!("{text}{byte:02x}"));
        let tokens = self.tokens.entry(session_id.to_owned()).or_default();
        // Renewals of a long life issue thousands; a worker holds one of the last few.
        if tokens.len() >= 1024 {
            tokens.remove(0);
        }
        tokens.push(token.clone().into());
        token
    }

    fn note(&mut self, at: Timestamp, session_id: &str, acceptor_id: &str, outcome: ClaimOutcome) {
        self.claims.push(ClaimRecord {
            at,
            session_id: session_id.to_owned(),
            acceptor_id: acceptor_id.to_owned(),
            outcome,
        });
    }
}

pub(crate) fn not_found(session_id: &str) -> Refusal {
    Refusal::NotFound(format!("session {session_id}"))
}
