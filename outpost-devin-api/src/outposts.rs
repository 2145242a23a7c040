//! Which outposts there are.
//!
//! The documentation has them at `/outposts/outposts`, public code of 2026 calls `/outposts`, and older deployments served
//! `/outposts/pools`: the first spelling that is served is found once and remembered.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::{Method, StatusCode};
use outpost_core::model::{OutpostId, Platform};
use outpost_core::ports::{Clock, Error, ErrorKind};
use secrecy::SecretString;
use serde_json::{Value, json};

use crate::client::{Answer, Call, Client, SMALL_BODY};
use crate::fault::{self, Nature, WHO};
use crate::queue::json as parse;
use crate::transport::Transport;
use crate::url::{BaseUrl, query};

const SPELLINGS: [&[&str]; 3] = [&["outposts", "outposts"], &["outposts"], &["outposts", "pools"]];
const UNKNOWN: usize = SPELLINGS.len();
const PAGES: usize = 1_000;

/// An outpost, as Devin describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Outpost {
    /// Its id.
    pub id: OutpostId,
    /// Its name.
    pub name: String,
    /// Its platform; `None` when it does not say.
    pub platform: Option<Platform>,
    /// What people wrote about it.
    pub description: String,
    /// Sessions in its queue; `None` when it does not say.
    pub queue_depth: Option<u64>,
    /// Claims in its queue; `None` when it does not say.
    pub active_claims: Option<u64>,
}

/// The outpost that an id or a name stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Resolved {
    /// It exists.
    Found(Outpost),
    /// The token may not list outposts; the id is taken as it is.
    Unchecked(OutpostId),
}

/// The outposts that a token can see.
#[derive(Debug)]
pub struct Outposts {
    client: Client,
    base: BaseUrl,
    spelling: AtomicUsize,
}

impl Outposts {
    /// The outposts that `token` can see.
    pub fn new(
        base: BaseUrl,
        token: &SecretString,
        transport: Arc<dyn Transport>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self {
            client: Client::new(transport, clock, Some(token)),
            base: base.into_fleet(),
            spelling: AtomicUsize::new(UNKNOWN),
        }
    }

    /// All of them.
    ///
    /// # Errors
    /// When any part of the list cannot be had.
    pub async fn list(&self) -> Result<Vec<Outpost>, Error> {
        Ok(self.every().await?)
    }

    async fn every(&self) -> Result<Vec<Outpost>, Fault> {
        const OPERATION: &str = "list outposts";
        let mut outposts = Vec::new();
        let mut cursors = HashSet::new();
        let mut after: Option<String> = None;
        for _ in 0..PAGES {
            let mut pairs = vec![("first", "200")];
            pairs.extend(after.as_deref().map(|after| ("after", after)));
            let answer = self.call(OPERATION, Method::GET, &[], &query(&pairs), None).await?;
            let page = parse(OPERATION, &answer.body)?;
            let items = page["items"].as_array();
            let items =
                items.ok_or_else(|| fault::nonsense(OPERATION, "the answer is not a page of a list"))?;
            outposts.extend(items.iter().filter_map(outpost));
            if page["has_next_page"] != Value::Bool(true) {
                return Ok(outposts);
            }
            let next = page["end_cursor"].as_str().filter(|cursor| !cursor.is_empty());
            let next =
                next.ok_or_else(|| fault::nonsense(OPERATION, "a page that is not the last has no cursor"))?;
            if !cursors.insert(next.to_owned()) {
                return Err(
                    fault::nonsense(OPERATION, "a cursor came twice: the list would never end").into()
                );
            }
            after = Some(next.to_owned());
        }
        Err(fault::nonsense(OPERATION, "the list does not end").into())
    }

    /// One of them; `None` when it does not exist.
    ///
    /// # Errors
    /// When that cannot be told.
    pub async fn get(&self, id: &OutpostId) -> Result<Option<Outpost>, Error> {
        const OPERATION: &str = "get outpost";
        self.probe(OPERATION).await?;
        match self.call(OPERATION, Method::GET, &[id.as_str()], "", None).await {
            Ok(answer) => outpost(&parse(OPERATION, &answer.body)?)
                .map(Some)
                .ok_or_else(|| fault::nonsense(OPERATION, "the answer is not an outpost")),
            Err(fault) if fault.error.kind() == ErrorKind::NotFound => Ok(None),
            Err(fault) => Err(fault.error),
        }
    }

    /// Makes one.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] when the name is taken.
    pub async fn create(&self, name: &str, platform: &str, description: &str) -> Result<Outpost, Error> {
        const OPERATION: &str = "create outpost";
        self.probe(OPERATION).await?;
        let body = json!({"name": name, "platform": platform, "description": description});
        let answer = self.call(OPERATION, Method::POST, &[], "", Some(&body)).await?;
        let made = parse(OPERATION, &answer.body).map_err(Error::may_have_been_applied)?;
        outpost(&made)
            .ok_or_else(|| fault::nonsense(OPERATION, "the answer is not an outpost").may_have_been_applied())
    }

    /// Deletes one. That it does not exist is success.
    ///
    /// # Errors
    /// When it may still exist.
    pub async fn delete(&self, id: &OutpostId) -> Result<(), Error> {
        const OPERATION: &str = "delete outpost";
        self.probe(OPERATION).await?;
        match self.call(OPERATION, Method::DELETE, &[id.as_str()], "", None).await {
            Ok(_) => Ok(()),
            Err(fault) if fault.error.kind() == ErrorKind::NotFound => Ok(()),
            Err(fault) => Err(fault.error),
        }
    }

    /// The outpost that an id or a name stands for, if it is one for `platform`. Where the token may claim but not list
    /// outposts, an id is taken unchecked.
    ///
    /// # Errors
    /// One line that says what to do.
    pub async fn resolve(&self, id_or_name: &str, platform: &Platform) -> Result<Resolved, Error> {
        const OPERATION: &str = "find the outpost";
        let looks_like_id = ["outpost_env-", "pool_"].iter().any(|prefix| id_or_name.starts_with(prefix));
        let outposts = match self.every().await {
            Ok(outposts) => outposts,
            // 403 is for listing only; a bad token answers 401, and shows at the first list of the queue too.
            Err(fault) if looks_like_id && fault.status == Some(StatusCode::FORBIDDEN) => {
                let id = OutpostId::new(id_or_name)
                    .map_err(|error| fault::nonsense(OPERATION, error.to_string()))?;
                return Ok(Resolved::Unchecked(id));
            }
            Err(fault) => return Err(fault.error),
        };
        let named = |outpost: &&Outpost| outpost.id.as_str() == id_or_name || outpost.name == id_or_name;
        let found: Vec<&Outpost> = outposts.iter().filter(named).collect();
        match found.as_slice() {
            [outpost] => check_platform(outpost, platform).map(|()| Resolved::Found((*outpost).clone())),
            [] => Err(Error::new(
                ErrorKind::NotFound,
                WHO,
                OPERATION,
                format!("there is no outpost `{id_or_name}`{}", others(&outposts)),
            )),
            _ => Err(fault::nonsense(
                OPERATION,
                format!("several outposts are called `{id_or_name}`; give the id"),
            )),
        }
    }

    /// Finds the spelling, if it is not known yet.
    async fn probe(&self, operation: &'static str) -> Result<(), Error> {
        if self.spelling.load(Ordering::Relaxed) == UNKNOWN {
            self.call(operation, Method::GET, &[], &query(&[("first", "1")]), None).await?;
        }
        Ok(())
    }

    async fn call(
        &self,
        operation: &'static str,
        method: Method,
        segments: &[&str],
        query: &str,
        body: Option<&Value>,
    ) -> Result<Answer, Fault> {
        let known = self.spelling.load(Ordering::Relaxed);
        let candidates = if known == UNKNOWN { 0..UNKNOWN } else { known..known + 1 };
        let mut last = None;
        for spelling in candidates {
            let path: Vec<&str> = SPELLINGS[spelling].iter().chain(segments).copied().collect();
            let url = self
                .base
                .join(&path)
                .ok_or_else(|| fault::nonsense(operation, "no outpost can have such an id"))?;
            let nature = if method == Method::GET { Nature::Reads } else { Nature::Changes };
            let answer = self
                .client
                .call(Call {
                    operation,
                    nature,
                    method: method.clone(),
                    url: format!("{url}{query}"),
                    body,
                    cap: SMALL_BODY,
                })
                .await?;
            let missing = matches!(answer.status, StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED);
            if answer.status.is_success() {
                self.spelling.store(spelling, Ordering::Relaxed);
                return Ok(answer);
            }
            let error = self.client.refused(operation, nature, &answer);
            let fault = Fault { status: Some(answer.status), error };
            if !missing || known != UNKNOWN {
                return Err(fault);
            }
            last = Some(fault);
        }
        Err(last.unwrap_or_else(|| fault::nonsense(operation, "no spelling of the address is served").into()))
    }
}

/// A call that failed, and the status when there was an answer.
struct Fault {
    status: Option<StatusCode>,
    error: Error,
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self { status: None, error }
    }
}

impl From<Fault> for Error {
    fn from(fault: Fault) -> Self {
        fault.error
    }
}

fn check_platform(outpost: &Outpost, platform: &Platform) -> Result<(), Error> {
    match &outpost.platform {
        Some(theirs) if theirs != platform => Err(fault::nonsense(
            "find the outpost",
            format!(
                "the outpost `{}` is for {theirs:?}, and the sandboxes here are {platform:?}",
                outpost.name
            ),
        )),
        _ => Ok(()),
    }
}

fn others(outposts: &[Outpost]) -> String {
    const SHOWN: usize = 5;
    if outposts.is_empty() {
        return "; the token sees none: check its account and permissions".to_owned();
    }
    let names: Vec<String> = outposts
        .iter()
        .take(SHOWN)
        .map(|outpost| format!("{} ({})", outpost.id, outpost.name.escape_debug()))
        .collect();
    let more = outposts.len().saturating_sub(SHOWN);
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    format!("; the token sees {}{more}", names.join(", "))
}

fn outpost(value: &Value) -> Option<Outpost> {
    let (metadata, spec, status) = (&value["metadata"], &value["spec"], &value["status"]);
    let id = metadata["outpost_id"].as_str().or_else(|| metadata["pool_id"].as_str())?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let platform = spec["platform"].as_str().map(|platform| match platform {
        "linux" => Platform::Linux,
        "macos" => Platform::Macos,
        "windows" => Platform::Windows,
        other => Platform::Unknown(other.to_owned()),
    });
    Some(Outpost {
        id: OutpostId::new(id).ok()?,
        name: text(&spec["name"]),
        platform,
        description: text(&spec["description"]),
        queue_depth: status["queue_depth"].as_u64(),
        active_claims: status["active_claims"].as_u64(),
    })
}
