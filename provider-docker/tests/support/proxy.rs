//! A proxy before an engine's socket that answers in the engine's place, drops answers, or takes its time.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};

/// What is done to requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The engine never sees it; this is the answer.
    Instead(u16),
    /// The engine does it; this is the answer all the same.
    After(u16),
    /// The engine does it, and the connection ends without an answer.
    Lost,
    /// The engine sees it later.
    Delay(Duration),
}

/// To which requests.
#[derive(Debug, Clone)]
pub struct Rule {
    pub method: &'static str,
    /// A part of the path and query.
    pub path: String,
    pub fault: Fault,
    /// How often; `None` = always.
    pub times: Option<u32>,
}

/// A proxy. Each connection carries one request, so that each request is seen.
#[derive(Debug)]
pub struct Proxy {
    pub socket: PathBuf,
    rules: Arc<Mutex<Vec<Rule>>>,
    seen: Arc<Mutex<Vec<String>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Proxy {
    pub fn start(dir: &Path, engine: PathBuf) -> Self {
        let socket = dir.join("engine.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let rules: Arc<Mutex<Vec<Rule>>> = Arc::default();
        let seen: Arc<Mutex<Vec<String>>> = Arc::default();
        let (its_rules, its_seen) = (rules.clone(), seen.clone());
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (rules, seen, engine) = (its_rules.clone(), its_seen.clone(), engine.clone());
                tokio::spawn(async move {
                    let _ = serve(client, &engine, &rules, &seen).await;
                });
            }
        });
        Self { socket, rules, seen, task }
    }

    pub fn address(&self) -> String {
        format!("unix://{}", self.socket.display())
    }

    pub fn rule(&self, method: &'static str, path: impl Into<String>, fault: Fault, times: Option<u32>) {
        self.rules.lock().unwrap().push(Rule { method, path: path.into(), fault, times });
    }

    pub fn heal(&self) {
        self.rules.lock().unwrap().clear();
    }

    /// The request lines that came.
    pub fn seen(&self) -> Vec<String> {
        self.seen.lock().unwrap().clone()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
        let _ = std::fs::remove_file(&self.socket);
    }
}

async fn serve(
    mut client: UnixStream,
    engine: &Path,
    rules: &Mutex<Vec<Rule>>,
    seen: &Mutex<Vec<String>>,
) -> std::io::Result<()> {
    let mut head = Vec::new();
    let end = loop {
        if let Some(end) = head.windows(4).position(|window| window == b"\r\n\r\n") {
            break end;
        }
        if client.read_buf(&mut head).await? == 0 {
            return Ok(());
        }
    };
    let text = String::from_utf8_lossy(&head[..end]).into_owned();
    let line = text.lines().next().unwrap_or_default().to_owned();
    seen.lock().unwrap().push(line.clone());
    let fault = matching(rules, &line);
    match fault {
        Some(Fault::Instead(status)) => return answer(&mut client, status).await,
        Some(Fault::Delay(pause)) => tokio::time::sleep(pause).await,
        _ => {}
    }
    let mut server = UnixStream::connect(engine).await?;
    let upgrades = text.to_ascii_lowercase().contains("\r\nupgrade:");
    let closing = if upgrades { "" } else { "\r\nConnection: close" };
    server.write_all(text.as_bytes()).await?;
    server.write_all(closing.as_bytes()).await?;
    server.write_all(&head[end..]).await?;
    match fault {
        Some(Fault::After(_) | Fault::Lost) => {
            let (mut from, mut to) = client.split();
            let (mut answers, mut asks) = server.split();
            let mut thrown_away = Vec::new();
            tokio::select! {
                // The body goes on to the engine until it has answered.
                result = async { tokio::io::copy(&mut from, &mut asks).await?; std::future::pending::<std::io::Result<()>>().await } => result?,
                result = answers.read_to_end(&mut thrown_away) => { result?; }
            }
            if let Some(Fault::After(status)) = fault {
                to.write_all(response(status).as_bytes()).await?;
            }
            Ok(())
        }
        _ => {
            tokio::io::copy_bidirectional(&mut client, &mut server).await?;
            Ok(())
        }
    }
}

fn matching(rules: &Mutex<Vec<Rule>>, line: &str) -> Option<Fault> {
    let mut rules = rules.lock().unwrap();
    let rule = rules.iter_mut().find(|rule| {
        rule.times != Some(0) && line.starts_with(&format!("{} ", rule.method)) && line.contains(&rule.path)
    })?;
    if let Some(times) = &mut rule.times {
        *times -= 1;
    }
    Some(rule.fault)
}

async fn answer(client: &mut UnixStream, status: u16) -> std::io::Result<()> {
    client.write_all(response(status).as_bytes()).await
}

fn response(status: u16) -> String {
    let body = format!("{{\"message\":\"the proxy says {status}\"}}");
    let length = body.len();
    format!(
        "HTTP/1.1 {status} Proxy\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
    )
}
