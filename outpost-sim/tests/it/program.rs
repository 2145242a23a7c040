//! `outpost-sim serve`, as a person uses it.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

const PROGRAM: &str = env!("CARGO_BIN_EXE_outpost-sim");

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // It may have been interrupted already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn op(control_url: &str, operation: &str) -> (bool, String) {
    let output =
        Command::new(PROGRAM).args(["op", "--control-url", control_url, operation]).output().unwrap();
    (output.status.success(), String::from_utf8(output.stdout).unwrap())
}

#[test]
fn simulator_runs_by_itself_takes_operations_and_leaves_when_interrupted() {
    let child = Command::new(PROGRAM).arg("serve").stdout(Stdio::piped()).spawn().unwrap();
    let mut program = Killed(child);
    let lines = BufReader::new(program.0.stdout.take().unwrap()).lines().map(Result::unwrap);
    let settings: Vec<(String, String)> =
        lines.take(5).map(|line| line.split_once('=').map(|(k, v)| (k.into(), v.into())).unwrap()).collect();
    let names: Vec<_> = settings.iter().map(|(name, _)| &**name).collect();
    let expected = [
        "DEVIN_API_URL",
        "DEVIN_API_TOKEN",
        "DEVIN_OUTPOST_ID",
        "DEVIN_WORKER_STATIC_BASE_URL",
        "OUTPOST_SIM_CONTROL_URL",
    ];
    assert_eq!(names, expected);
    let control_url = &settings[4].1;
    assert!(op(control_url, r#"{"op": "create_row", "row": {"session_id": "devin-1"}}"#).0);
    let (done, rows) = op(control_url, r#"{"op": "rows"}"#);
    assert!(done && rows.contains("devin-1"), "{rows}");
    assert!(!op(control_url, r#"{"op": "wake", "session_id": "devin-2"}"#).0);
    let pid = program.0.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    assert!(program.0.wait().unwrap().success());
}
