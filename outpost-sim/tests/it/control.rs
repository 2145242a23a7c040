//! Control over HTTP and in process is the same.

use std::time::Duration;

use outpost_sim::control::{Control, ControlClient, ControlExt, Op};
use outpost_sim::fault::{Endpoint, Fault, FaultRule};
use outpost_sim::model::{NewRow, Oddity};
use outpost_sim::script::Step;
use serde_json::json;

use crate::world::World;

/// What a test does, on either form.
fn play(control: &impl Control) -> Vec<String> {
    let odd = Oddity::Set { pointer: "/spec/kind".into(), value: json!(null) };
    control.create_scripted(NewRow::new("devin-1").odd(odd), vec![Step::run("true"), Step::Suspend]).unwrap();
    control.push("devin-1", vec![Step::wait("x"), Step::Terminate]).unwrap();
    control.go("devin-1", "x").unwrap();
    control.seize("devin-1", Some("me")).unwrap();
    control.set_status("devin-1", "suspended").unwrap();
    let claimed = control.row("devin-1").unwrap().unwrap();
    control.wake("devin-1").unwrap();
    let woken = control.row("devin-1").unwrap().unwrap();
    control.set_status("devin-1", "terminated").unwrap();
    let swept = control.sweep().unwrap();
    let gone = control.row("devin-1").unwrap();
    let status = control.status("devin-1").unwrap();
    control.add_fault(FaultRule::once(Endpoint::List, Fault::status(500))).unwrap();
    control.clear_faults().unwrap();
    let before = control.time().unwrap();
    control.advance(Duration::from_secs(3600)).unwrap();
    let jumped = control.time().unwrap().duration_since(before).as_secs() >= 3600;
    let refused = control.tombstone("devin-9").unwrap_err();
    vec![
        format!("{:?} {} {}", claimed.acceptor_id, claimed.session_status, claimed.steps_left),
        format!("{:?} {} {}", woken.acceptor_id, woken.session_status, woken.kind),
        format!("{swept} {gone:?} {status:?} {jumped} {refused}"),
        format!("{:?} {:?}", control.workers().unwrap(), control.claims().unwrap()),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn control_over_http_does_what_control_in_process_does() {
    let (near, far) = (World::start().await, World::start().await);
    let client = ControlClient::new(&far.server().control_url());
    let seen_far = tokio::task::spawn_blocking(move || play(&client)).await.unwrap();
    assert_eq!(play(near.sim()), seen_far);
    assert_eq!(
        seen_far[..3],
        [
            "Some(\"me\") suspended 4",
            "None pending resume",
            "1 None Some(\"terminated\") true simulator refuses: session devin-9 not found"
        ]
    );
}

#[test]
fn operations_are_json_that_people_can_write() {
    let op = |text: &str| serde_json::from_str::<Op>(text).unwrap();
    let text = r#"{"op": "create_row", "row": {"session_id": "devin-1"}, "script": [{"do": "run", "command": "true"}, {"do": "suspend"}]}"#;
    let expected =
        Op::CreateRow { row: NewRow::new("devin-1"), script: vec![Step::run("true"), Step::Suspend] };
    assert_eq!(op(text), expected);
    let rule = FaultRule::once(Endpoint::List, Fault::status(500));
    let text = r#"{"op": "add_fault", "rule": {"endpoint": "list", "fault": {"answer": {"status": 500}}}}"#;
    assert_eq!(op(text), Op::AddFault { rule });
    op(r#"{"op": "wake", "session_id": "devin-1"}"#);
    op(r#"{"op": "configure", "settings": {"page_cap": 1}}"#);
}
