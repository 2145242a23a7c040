use std::fmt;
use std::future::Future;
use std::panic::AssertUnwindSafe;

use futures::FutureExt;
use futures::future::BoxFuture;

use super::verdict::Verdict;

/// One case of a conformance table. `F` is the fixture: `dyn ProviderFixture` or `dyn StoreFixture`.
pub struct Case<F: ?Sized + 'static> {
    /// The id of the bullet in the trait's documentation that it proves.
    pub id: &'static str,
    /// What it proves, as a sentence in snake case; begins with the id in lower case.
    pub name: &'static str,
    /// Plays it.
    pub play: for<'a> fn(&'a F) -> BoxFuture<'a, Result<(), Verdict>>,
}

impl<F: ?Sized> fmt::Debug for Case<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// What became of a table's cases.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Report {
    /// The ids of those that passed.
    pub passed: Vec<&'static str>,
    /// The ids of those that were skipped, and why.
    pub skipped: Vec<(&'static str, String)>,
    /// The ids of those that failed, and why.
    pub failed: Vec<(&'static str, String)>,
}

impl Report {
    /// Panics when a case failed, or when none was played.
    ///
    /// # Panics
    /// See above: it is meant for tests.
    pub fn assert(&self) {
        for (id, why) in &self.skipped {
            eprintln!("skipped {id}: {why}");
        }
        assert!(self.failed.is_empty(), "cases failed: {:#?}", self.failed);
        assert!(!self.passed.is_empty(), "no case was played");
    }
}

/// Plays every case of a table, each on a fixture of its own, one after another.
pub async fn run_cases<F, M, Fut>(cases: &[Case<F>], make: M) -> Report
where
    F: ?Sized + Sync + Skips + 'static,
    M: Fn() -> Fut + Send + Sync,
    Fut: Future<Output = Box<F>> + Send,
    Box<F>: Send + Sync,
{
    let mut report = Report::default();
    for case in cases {
        let fixture = make().await;
        match play(case, &*fixture).await {
            Ok(()) => report.passed.push(case.id),
            Err(Verdict::Skipped(skip)) => report.skipped.push((case.id, skip.to_string())),
            Err(Verdict::Failed(why)) => report.failed.push((case.id, why)),
        }
    }
    report
}

/// Lets a fixture refuse a case beforehand.
#[doc(hidden)]
pub trait Skips {
    fn skips(&self, case: &str) -> Option<String>;
}

async fn play<F: ?Sized + Sync + Skips>(case: &Case<F>, fixture: &F) -> Result<(), Verdict> {
    if let Some(why) = fixture.skips(case.id) {
        return Err(Verdict::Skipped(super::Skip::because(why)));
    }
    // A panic inside an implementation is its failure, and must not hide what the other cases say.
    match AssertUnwindSafe((case.play)(fixture)).catch_unwind().await {
        Ok(verdict) => verdict,
        Err(_) => Err(Verdict::Failed("it panicked".to_owned())),
    }
}

/// Which runtime the macros' tests run on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Flavor {
    /// Two worker threads.
    #[default]
    MultiThread,
    /// The test's own thread.
    CurrentThread,
}

fn block_on<T>(flavor: Flavor, future: impl Future<Output = T>) -> T {
    let mut builder = match flavor {
        Flavor::MultiThread => tokio::runtime::Builder::new_multi_thread(),
        Flavor::CurrentThread => tokio::runtime::Builder::new_current_thread(),
    };
    let runtime = builder.worker_threads(2).enable_all().build().expect("a runtime can be made");
    runtime.block_on(future)
}

#[doc(hidden)]
pub fn run_as_test<F>(cases: &[Case<F>], name: &str, flavor: Flavor, fixture: impl Future<Output = Box<F>>)
where
    F: ?Sized + Sync + Skips + 'static,
{
    let case = cases.iter().find(|case| case.name == name).expect("the macro names cases of the table");
    let verdict = block_on(flavor, async {
        let fixture = fixture.await;
        play(case, &*fixture).await
    });
    match verdict {
        Ok(()) => {}
        Err(Verdict::Skipped(skip)) => eprintln!("skipped {}: {skip}", case.id),
        Err(Verdict::Failed(why)) => panic!("{} ({}): {why}", case.id, case.name),
    }
}

#[doc(hidden)]
pub fn at_least_one<F>(cases: &[Case<F>], flavor: Flavor, fixture: impl Future<Output = Box<F>>)
where
    F: ?Sized + Sync + Skips + 'static,
{
    let fixture = block_on(flavor, fixture);
    let refusals: Vec<_> = cases.iter().filter_map(|case| fixture.skips(case.id)).collect();
    assert!(refusals.len() < cases.len(), "every case is skipped: {refusals:?}");
}
