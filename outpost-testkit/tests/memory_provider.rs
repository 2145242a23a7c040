//! The providers and stores of this crate pass the suites of this crate.

mod as_a_docker {
    use std::time::Duration;

    use outpost_core::ports::Support;
    use outpost_testkit::memory::{BackendOptions, MemoryFixture};

    fn fixture() -> MemoryFixture {
        let mut options = BackendOptions::default();
        options.save_takes = Duration::from_millis(300);
        options.remove_takes = Duration::from_millis(300);
        options.term_takes = Duration::from_millis(100);
        options.network_policy = Support::No;
        MemoryFixture::with(options)
    }

    outpost_testkit::provider_conformance!(fixture());
}

mod as_an_e2b {
    use std::time::Duration;

    use outpost_core::ports::{AfterSave, Support};
    use outpost_testkit::memory::{BackendOptions, MemoryFixture};

    fn fixture() -> MemoryFixture {
        let mut options = BackendOptions::default();
        options.save_takes = Duration::from_secs(1);
        options.after_save = AfterSave::Consumed;
        options.delete_snapshots = Support::No;
        options.time_to_live = Some(Duration::from_secs(300));
        options.lifetime_limit = Some(Duration::from_secs(3600));
        MemoryFixture::with(options)
    }

    outpost_testkit::provider_conformance!(fixture(), current_thread);
}

mod store {
    use outpost_testkit::memory::MemoryStoreFixture;

    outpost_testkit::store_conformance!(MemoryStoreFixture::new());
}
