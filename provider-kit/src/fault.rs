//! What goes wrong inside a provider, in a form that several waiters can be given.

use std::fmt;
use std::io;

use outpost_core::ports::{Effect, Error, ErrorKind};

/// A fault before it is known which operation of the port it ends. Unlike the port's error it can be cloned, because
/// every caller that waits for the same task is told.
#[derive(Debug, Clone)]
pub struct Fault {
    /// What kind of fault it is.
    pub kind: ErrorKind,
    /// One lower-case line for people, without secrets.
    pub message: String,
    /// Whether the operation may have been applied.
    pub effect: Effect,
}

impl Fault {
    /// A fault whose operation surely did nothing.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), effect: Effect::None }
    }

    /// An I/O error met while doing `what`.
    pub fn io(what: impl fmt::Display, error: &io::Error) -> Self {
        Self::new(kind_of(error), format!("{what}: {error}"))
    }

    /// The same fault, whose operation may have been applied.
    #[must_use]
    pub fn may_have_been_applied(mut self) -> Self {
        self.effect = Effect::Possible;
        self
    }

    /// The fault as the port's error, met by the provider `who`.
    pub fn in_operation(self, who: &'static str, operation: &'static str) -> Error {
        let error = Error::new(self.kind, who, operation, self.message);
        match self.effect {
            Effect::None => error,
            Effect::Possible => error.may_have_been_applied(),
        }
    }
}

fn kind_of(error: &io::Error) -> ErrorKind {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
            ErrorKind::Capacity
        }
        io::ErrorKind::OutOfMemory => ErrorKind::Capacity,
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => ErrorKind::Unauthorized,
        _ => ErrorKind::Unexpected,
    }
}

/// Says what was being done when an I/O error came.
pub trait During<T> {
    /// Turns the error into a fault that begins with `what`.
    ///
    /// # Errors
    /// That fault.
    fn during<D: fmt::Display>(self, what: impl FnOnce() -> D) -> Result<T, Fault>;
}

impl<T> During<T> for io::Result<T> {
    fn during<D: fmt::Display>(self, what: impl FnOnce() -> D) -> Result<T, Fault> {
        self.map_err(|error| Fault::io(what(), &error))
    }
}

/// Runs blocking work on the runtime's threads for it. Dropping the future lets the work run on.
///
/// # Errors
/// The work's own, and an unexpected one when it panics.
pub async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Fault> + Send + 'static,
) -> Result<T, Fault> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => {
            Err(Fault::new(ErrorKind::Unexpected, format!("a task of the provider broke: {error}")))
        }
    }
}
