//! What only a real socket shows.

use std::sync::Arc;

use outpost_core::model::OutpostId;
use outpost_core::ports::{ErrorKind, SessionSource as _};
use outpost_devin_api::{BaseUrl, DevinQueue, Hosts, ReqwestTransport};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::simulated::Paused;

/// A server that answers one call with `answer`, and says what it was sent.
async fn once(answer: String) -> (String, tokio::task::JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let served = tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        let mut sent = vec![0; 16 << 10];
        let read = socket.read(&mut sent).await.unwrap();
        socket.write_all(answer.as_bytes()).await.unwrap();
        socket.shutdown().await.unwrap();
        String::from_utf8_lossy(&sent[..read]).into_owned()
    });
    (url, served)
}

fn queue(url: &str) -> DevinQueue {
    let base = BaseUrl::parse(url, Hosts::Devin).unwrap();
    let transport = Arc::new(ReqwestTransport::new().unwrap());
    DevinQueue::new(
        base,
        &"cog_sentinel".into(),
        OutpostId::new("o").unwrap(),
        transport,
        Arc::new(Paused::new()),
    )
}

// lesson 50
#[tokio::test]
async fn a_redirect_is_not_followed_and_the_token_stays_here() {
    let elsewhere = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = elsewhere.local_addr().unwrap();
    let answer =
        format!("HTTP/1.1 307 Temporary Redirect\r\nlocation: http://{target}/\r\ncontent-length: 0\r\n\r\n");
    let (url, served) = once(answer).await;
    let error = queue(&url).list().await.unwrap_err();
    assert!(error.to_string().contains("leads elsewhere"), "{error}");
    assert!(served.await.unwrap().contains("authorization: Bearer cog_sentinel"), "the first host gets it");
    let followed = tokio::time::timeout(std::time::Duration::from_millis(200), elsewhere.accept()).await;
    assert!(followed.is_err(), "nobody came");
}

#[tokio::test]
async fn a_server_that_is_not_there_is_unavailable_and_the_address_is_not_repeated() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let error = queue(&url).list().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(!format!("{error:?}").contains("first=200"), "no query string: {error:?}");
}

// lesson 60: one crypto provider, and it is installed before the first use
#[test]
fn tls_can_be_set_up_again_and_again() {
    for _ in 0..3 {
        assert!(ReqwestTransport::new().is_ok());
    }
}
