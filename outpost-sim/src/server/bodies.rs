//! Bodies that do not end as they should.

use std::io;

use axum::body::{Body, BodyDataStream};
use axum::http::header;
use axum::response::Response;
use bytes::Bytes;
use futures::StreamExt;
use futures::stream;

/// What comes after the last byte that is let through.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Ending {
    Break,
    Stall,
    End,
}

/// The answer with a body that ends in another way after so many bytes.
pub(crate) fn cut(response: Response, after_bytes: usize, ending: Ending) -> Response {
    let (mut parts, body) = response.into_parts();
    parts.headers.remove(header::CONTENT_LENGTH);
    let cut = Cut { body: body.into_data_stream(), left: after_bytes, ending, broken: false };
    let stream = stream::unfold(cut, |mut cut| async move { cut.next().await.map(|item| (item, cut)) });
    Response::from_parts(parts, Body::from_stream(stream))
}

/// The answer with a body that comes in pieces of this size.
pub(crate) fn split(response: Response, chunk_bytes: usize) -> Response {
    let (mut parts, body) = response.into_parts();
    parts.headers.remove(header::CONTENT_LENGTH);
    let pieces = body.into_data_stream().flat_map(move |chunk| {
        let pieces: Vec<_> = match chunk {
            Ok(chunk) => {
                chunk.chunks(chunk_bytes.max(1)).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect()
            }
            Err(error) => vec![Err(error)],
        };
        stream::iter(pieces)
    });
    Response::from_parts(parts, Body::from_stream(pieces))
}

/// An answer of which nothing arrives.
pub(crate) fn broken() -> Response {
    cut(Response::new(Body::empty()), 0, Ending::Break)
}

struct Cut {
    body: BodyDataStream,
    left: usize,
    ending: Ending,
    broken: bool,
}

impl Cut {
    async fn next(&mut self) -> Option<io::Result<Bytes>> {
        if self.broken {
            return None;
        }
        while self.left > 0 {
            match self.body.next().await {
                Some(Ok(chunk)) if chunk.is_empty() => {}
                Some(Ok(mut chunk)) => {
                    chunk.truncate(self.left);
                    self.left -= chunk.len();
                    return Some(Ok(chunk));
                }
                Some(Err(error)) => return Some(Err(io::Error::other(error))),
                None => break,
            }
        }
        match self.ending {
            Ending::End => None,
            Ending::Stall => std::future::pending().await,
            Ending::Break => {
                self.broken = true;
                Some(Err(io::ErrorKind::ConnectionReset.into()))
            }
        }
    }
}
