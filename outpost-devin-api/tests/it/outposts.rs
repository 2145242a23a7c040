//! Which outposts there are, in every spelling of the address.

use std::sync::Arc;

use outpost_core::model::{OutpostId, Platform};
use outpost_core::ports::ErrorKind;
use outpost_devin_api::{Outposts, Resolved};
use outpost_sim::control::{ControlExt as _, Settings};
use outpost_sim::fault::{Endpoint, Fault, FaultRule};
use outpost_sim::model::Spelling;
use serde_json::json;

use crate::script::{Reply, Scripted};
use crate::simulated::{Paused, Simulated, base, simulated};

fn spelled(spelling: Spelling) -> Simulated {
    let at = simulated();
    let mut settings = Settings::default();
    settings.spellings = Some(vec![spelling]);
    at.sim.configure(settings).unwrap();
    at
}

// lesson 11
#[tokio::test(start_paused = true)]
async fn every_spelling_of_the_address_is_found_once_and_remembered() {
    for (spelling, probes) in [(Spelling::Outposts, 1), (Spelling::Bare, 2), (Spelling::Pools, 3)] {
        let at = spelled(spelling);
        let outposts = at.outposts();
        let made = outposts.create("mine", "linux", "for a test").await.unwrap();
        assert_eq!((made.name.as_str(), made.platform.clone()), ("mine", Some(Platform::Linux)));
        assert_eq!(outposts.get(&made.id).await.unwrap().as_ref(), Some(&made));
        assert!(outposts.list().await.unwrap().contains(&made));
        outposts.delete(&made.id).await.unwrap();
        assert_eq!(outposts.get(&made.id).await.unwrap(), None);
        outposts.delete(&made.id).await.unwrap();
        let calls = at.sim.requests().unwrap().len();
        assert_eq!(calls, probes + 6, "{spelling:?}: probed once, then one call each");
    }
}

#[tokio::test(start_paused = true)]
async fn a_name_that_is_taken_is_a_conflict() {
    let at = simulated();
    let outposts = at.outposts();
    outposts.create("mine", "linux", "").await.unwrap();
    assert_eq!(outposts.create("mine", "linux", "").await.unwrap_err().kind(), ErrorKind::Conflict);
}

#[tokio::test(start_paused = true)]
async fn a_name_or_an_id_is_resolved_and_a_wrong_one_says_what_there_is() {
    let at = simulated();
    let outposts = at.outposts();
    let made = outposts.create("mine", "linux", "").await.unwrap();
    for text in ["mine", made.id.as_str()] {
        assert_eq!(outposts.resolve(text, &Platform::Linux).await.unwrap(), Resolved::Found(made.clone()));
    }
    let error = outposts.resolve("other", &Platform::Linux).await.unwrap_err().to_string();
    assert!(error.contains("no outpost `other`") && error.contains("(mine)"), "{error}");
    let error = outposts.resolve("mine", &Platform::Macos).await.unwrap_err().to_string();
    assert!(error.contains("is for Linux"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn where_a_token_may_not_list_outposts_an_id_is_taken_unchecked_and_a_name_is_not() {
    let at = simulated();
    at.sim.add_fault(FaultRule::always(Endpoint::Outposts, Fault::status(403))).unwrap();
    let outposts = at.outposts();
    let id = OutpostId::new("outpost_env-7").unwrap();
    assert_eq!(outposts.resolve(id.as_str(), &Platform::Linux).await.unwrap(), Resolved::Unchecked(id));
    assert!(outposts.resolve("mine", &Platform::Linux).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_token_that_is_not_accepted_is_an_error_whatever_the_answer_says() {
    let server = Scripted::new([Reply::Whole(401, json!({"detail": "gateway: 403"}).to_string())]);
    let clock = Arc::new(Paused::new());
    let outposts = Outposts::new(base(), &"token".into(), server, clock);
    let error = outposts.resolve("outpost_env-7", &Platform::Linux).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unauthorized, "{error}");
}
