//! The fleet API as a client sees it, in process and under paused time: what is documented.

use std::time::Duration;

use crate::client::{Client, bearer};
use outpost_sim::control::{ControlExt, Settings};
use outpost_sim::fault::Endpoint;
use outpost_sim::model::{DEFAULT_OUTPOST, NewRow, Spelling};
use outpost_sim::{ServeOptions, serve};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

const LIST: &str = "/opbeta/outposts/devins?outpost=outpost_env-sim";
const WATCH: &str = "/opbeta/outposts/devins?outpost=outpost_env-sim&watch=true";

#[tokio::test(start_paused = true)]
async fn calls_without_the_right_token_are_401_with_a_detail() {
    let client = Client::start();
    for token in [None, Some("Bearer cog_wrong"), Some("cog_simulated"), Some("Basic x")] {
        let answer = client.send("GET", LIST, token, None).await;
        assert_eq!(answer.status, 401, "{token:?}");
        assert!(answer.json()["detail"].is_string());
    }
    let mut settings = Settings::default();
    settings.token = Some("cog_rotated".to_owned());
    client.sim.configure(settings).unwrap();
    assert_eq!(client.get(LIST).await.status, 401);
    assert_eq!(client.send("GET", LIST, Some("Bearer cog_rotated"), None).await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn session_is_listed_claimed_renewed_and_released() {
    let client = Client::start();
    client.sim.create(NewRow::new("devin-1")).unwrap();
    let page = client.get(LIST).await.json();
    assert_eq!(page["items"][0]["metadata"]["session_id"], "devin-1");
    assert_eq!((&page["has_next_page"], &page["total"]), (&json!(false), &json!(1)));

    let path = "/opbeta/outposts/devins/devin-1";
    let me = json!({ "acceptor_id": "me" });
    let claim = async || client.post(&format!("{path}/claim"), me.clone()).await;
    assert!(claim().await.json()["status"]["connect_token"].is_string());
    assert_eq!(claim().await.status, 200);
    let rival = client.post(&format!("{path}/claim"), json!({ "acceptor_id": "rival" })).await;
    assert_eq!(rival.status, 409);
    assert_eq!(client.post(&format!("{path}/release"), me.clone()).await.status, 200);
    assert_eq!(client.post(&format!("{path}/release"), me).await.status, 409);
    assert_eq!(client.get(path).await.json()["status"]["phase"], "pending");
    assert_eq!(client.get("/opbeta/outposts/devins/devin-2").await.status, 404);
    assert_eq!(client.sim.count(Endpoint::Claim).unwrap(), 3);
}

#[tokio::test(start_paused = true)]
async fn session_ids_are_decoded_from_the_path() {
    let client = Client::start();
    client.sim.create(NewRow::new("odd/id ü")).unwrap();
    let answer = client.get("/opbeta/outposts/devins/odd%2Fid%20%C3%BC").await;
    assert_eq!(answer.json()["metadata"]["session_id"], "odd/id ü");
}

#[tokio::test(start_paused = true)]
async fn bad_input_is_422_and_bad_cursors_are_400_and_410() {
    let client = Client::start();
    for query in ["&first=0", "&first=201", "&first=x", "&phase=odd"] {
        let answer = client.get(&format!("{LIST}{query}")).await;
        assert_eq!(answer.status, 422, "{query}");
        assert!(answer.json()["detail"].is_array());
    }
    assert_eq!(client.get(&format!("{LIST}&cursor=nonsense")).await.status, 400);
    assert_eq!(client.get(&format!("{WATCH}&cursor=nonsense")).await.status, 400);
    let old = client.get(LIST).await.json()["cursor"].as_str().unwrap().to_owned();
    client.sim.forget_history().unwrap();
    assert_eq!(client.get(&format!("{WATCH}&cursor={old}")).await.status, 410);
    let claim = "/opbeta/outposts/devins/devin-1/claim";
    assert_eq!(client.send("POST", claim, bearer(), Some("nonsense")).await.status, 422);
    assert_eq!(client.post(claim, json!({})).await.status, 422);
}

#[tokio::test(start_paused = true)]
async fn pages_are_followed_by_cursor_and_can_be_made_smaller_than_asked() {
    let client = Client::start();
    for n in 0..7 {
        client.sim.create(NewRow::new(format!("devin-{n}"))).unwrap();
    }
    let mut settings = Settings::default();
    settings.page_cap = Some(3);
    client.sim.configure(settings).unwrap();
    let (mut seen, mut pages, mut cursor) = (std::collections::BTreeSet::new(), 0, String::new());
    loop {
        let page = client.get(&format!("{LIST}&first=200{cursor}")).await.json();
        pages += 1;
        for row in page["items"].as_array().unwrap() {
            seen.insert(row["metadata"]["session_id"].as_str().unwrap().to_owned());
        }
        cursor = format!("&cursor={}", page["cursor"].as_str().unwrap());
        if page["has_next_page"] == false {
            break;
        }
    }
    assert_eq!((seen.len(), pages), (7, 4));
    assert_eq!(client.sim.count(Endpoint::List).unwrap(), 4);
}

#[tokio::test(start_paused = true)]
async fn watch_tells_changes_as_they_happen_and_tombstones_as_deleted() {
    let client = Client::start();
    client.sim.create(NewRow::new("devin-1")).unwrap();
    let cursor = client.get(LIST).await.json()["cursor"].as_str().unwrap().to_owned();
    let mut watch = client.watch(&format!("{WATCH}&cursor={cursor}&phase=claimed&acceptor_id=nobody")).await;
    let boundary = watch.event().await.unwrap();
    assert_eq!(boundary["object"]["metadata"]["session_id"], "devin-1");

    client.sim.set_status("devin-1", "running").unwrap();
    let event = watch.event().await.unwrap();
    assert_eq!(
        (&event["type"], &event["object"]["status"]["session_status"]),
        (&json!("MODIFIED"), &json!("running"))
    );
    client.sim.create(NewRow::new("elsewhere-1").outpost("elsewhere")).unwrap();
    client.sim.create(NewRow::new("devin-2")).unwrap();
    assert_eq!(watch.event().await.unwrap()["object"]["metadata"]["session_id"], "devin-2");
    client.sim.tombstone("devin-1").unwrap();
    let event = watch.event().await.unwrap();
    assert_eq!(
        (&event["type"], &event["object"]["metadata"]["session_id"]),
        (&json!("DELETED"), &json!("devin-1"))
    );
    assert!(event["cursor"].is_string());
}

#[tokio::test(start_paused = true)]
async fn watch_hears_a_status_that_lags_behind_without_anybody_asking() {
    let client = Client::start();
    client.sim.create(NewRow::new("devin-1").status("running")).unwrap();
    let mut watch = client.watch(WATCH).await;
    watch.event().await.unwrap();
    client.sim.fleet(|fleet, now| fleet.set_status_at(now + Duration::from_secs(3), "devin-1", "suspended"));
    client.sim.set_status("devin-1", "running").unwrap();
    watch.event().await.unwrap();
    assert_eq!(watch.event().await.unwrap()["object"]["status"]["session_status"], "suspended");
}

#[tokio::test(start_paused = true)]
async fn idle_watch_keeps_alive_with_comments_and_ends_after_five_minutes() {
    let client = Client::start();
    let start = tokio::time::Instant::now();
    let answer = client.get(WATCH).await;
    let text = String::from_utf8(answer.body.unwrap()).unwrap();
    assert_eq!(start.elapsed(), Duration::from_secs(300));
    let comments = text.lines().filter(|line| *line == ": keepalive").count();
    assert!((19..=20).contains(&comments), "{comments}");
    assert!(!text.contains("data:"));
}

#[tokio::test(start_paused = true)]
async fn watch_goes_on_from_its_last_cursor_after_it_ended() {
    let client = Client::start();
    let mut settings = Settings::default();
    settings.stream_length_ms = Some(1000);
    client.sim.configure(settings).unwrap();
    client.sim.create(NewRow::new("devin-1")).unwrap();
    let mut watch = client.watch(WATCH).await;
    let cursor = watch.event().await.unwrap()["cursor"].as_str().unwrap().to_owned();
    assert_eq!(watch.event().await, None);
    client.sim.create(NewRow::new("devin-2")).unwrap();
    let mut watch = client.watch(&format!("{WATCH}&cursor={cursor}")).await;
    let mut next = async || watch.event().await.unwrap()["object"]["metadata"]["session_id"].clone();
    assert_eq!([next().await, next().await], ["devin-1", "devin-2"]);
}

#[tokio::test(start_paused = true)]
async fn outposts_answer_under_the_spellings_that_a_deployment_has() {
    let client = Client::start();
    let paths = ["/opbeta/outposts/outposts", "/opbeta/outposts", "/opbeta/outposts/pools"];
    let statuses = async || {
        let mut found = Vec::new();
        for path in paths {
            let list = client.get(path).await.status;
            let one = client.get(&format!("{path}/{DEFAULT_OUTPOST}")).await.status;
            assert_eq!(list, one, "{path}");
            found.push(list);
        }
        found
    };
    assert_eq!(statuses().await, [200, 200, 404]);
    let mut settings = Settings::default();
    settings.spellings = Some(vec![Spelling::Pools]);
    client.sim.configure(settings).unwrap();
    assert_eq!(statuses().await, [404, 404, 200]);

    client.sim.create(NewRow::new("devin-1")).unwrap();
    let page = client.get("/opbeta/outposts/devins?pool=outpost_env-sim").await.json();
    assert_eq!(page["items"][0]["metadata"]["pool_id"], DEFAULT_OUTPOST);
    let body = json!({ "name": "mine", "platform": "linux", "description": "for me" });
    let made = client.post("/opbeta/outposts/pools", body).await.json();
    let path = format!("/opbeta/outposts/pools/{}", made["metadata"]["pool_id"].as_str().unwrap());
    assert_eq!(client.send("DELETE", &path, bearer(), None).await.status, 204);
    assert_eq!(client.get(&path).await.status, 404);
}

#[tokio::test(start_paused = true)]
async fn client_of_the_fleet_api_finds_nothing_that_the_real_one_does_not_have() {
    let client = Client::start();
    for path in
        ["/_sim/op", "/gateway/devin-1/hello", "/devin-rs/remote/latest_linux_x64", "/opbeta/odd", "/"]
    {
        for method in ["GET", "POST"] {
            let answer = client.send(method, path, bearer(), None).await;
            assert_eq!(
                (answer.status, answer.json()),
                (404, json!({ "detail": "Not Found" })),
                "{method} {path}"
            );
        }
    }
    assert_eq!(client.send("DELETE", LIST, bearer(), None).await.status, 405);
}

#[tokio::test(start_paused = true)]
async fn request_log_has_every_call_and_no_token() {
    let client = Client::start();
    client.sim.create(NewRow::new("devin-1")).unwrap();
    client.get(LIST).await;
    client.get("/opbeta/outposts/devins/devin-2").await;
    let claimed =
        client.post("/opbeta/outposts/devins/devin-1/claim", json!({ "acceptor_id": "me" })).await.json();
    let requests = client.sim.requests().unwrap();
    let seen: Vec<_> =
        requests.iter().map(|request| (request.endpoint, &*request.path, request.status)).collect();
    let (get, claim) = ("/opbeta/outposts/devins/devin-2", "/opbeta/outposts/devins/devin-1/claim");
    let expected = [
        (Endpoint::List, LIST, Some(200)),
        (Endpoint::Get, get, Some(404)),
        (Endpoint::Claim, claim, Some(200)),
    ];
    assert_eq!(seen, expected);
    let told = format!("{requests:?} {:?}", client.sim);
    let connect_token = claimed["status"]["connect_token"].as_str().unwrap();
    for token in [outpost_sim::DEFAULT_TOKEN, connect_token] {
        assert!(!told.contains(token));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn stopped_simulator_ends_its_streams_and_frees_its_ports() {
    let server = serve(ServeOptions::default()).await.unwrap();
    let port = server.api_origin().rsplit(':').next().unwrap().parse().unwrap();
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let request = format!("GET {WATCH} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer cog_simulated\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut first = [0; 12];
    stream.read_exact(&mut first).await.unwrap();
    assert_eq!(&first, b"HTTP/1.1 200");
    server.stop().await;
    // An end or a reset: either way nothing more comes.
    let _ = timeout(Duration::from_secs(30), stream.read_to_end(&mut Vec::new()))
        .await
        .expect("the stream lives on");
    let mut options = ServeOptions::default();
    options.fleet_port = port;
    serve(options).await.unwrap();
}
