//! An HTTP proxy that asks for a password: a credential that a build uses.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// What must not be in an image: the password.
pub(crate) const PASSWORD: &str = "sentinel-7c1f02e9ab";
/// The same, as it goes over the wire: `builder:` and the password in base64.
pub(crate) const AUTHORIZATION: &str = "YnVpbGRlcjpzZW50aW5lbC03YzFmMDJlOWFi";

/// A proxy on loopback, until the test's runtime ends.
#[derive(Debug)]
pub(crate) struct Proxy {
    port: u16,
    served: Arc<AtomicUsize>,
}

impl Proxy {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let served = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&served);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let counted = Arc::clone(&counted);
                tokio::spawn(async move {
                    if serve(client).await.is_some() {
                        counted.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
        });
        Self { port, served }
    }

    /// Its address with the password in it, as `http_proxy` has it.
    pub(crate) fn url(&self) -> String {
        format!("http://builder:{PASSWORD}@127.0.0.1:{}", self.port)
    }

    /// How many requests with the right password it has passed on to their end.
    pub(crate) fn served(&self) -> usize {
        self.served.load(Ordering::Relaxed)
    }
}

/// Passes one connection on to the host that its first request names; `None` when it came to nothing.
async fn serve(mut client: TcpStream) -> Option<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(client.read_u8().await.ok()?);
    }
    let text = String::from_utf8_lossy(&head);
    if !text.contains(&format!("Basic {AUTHORIZATION}\r\n")) {
        client
            .write_all(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
            .await
            .ok()?;
        return None;
    }
    let (_, address) = text.lines().next()?.split_once("http://")?;
    let mut server = TcpStream::connect(address.split('/').next()?).await.ok()?;
    server.write_all(&head).await.ok()?;
    tokio::io::copy_bidirectional(&mut client, &mut server).await.ok().map(drop)
}
