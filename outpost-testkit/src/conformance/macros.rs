/// Expands to one test for each case of the contract of [`SandboxProvider`](outpost_core::ports::SandboxProvider).
///
/// The argument is an expression that makes a fixture; it runs inside the runtime and may `.await`. Tests run on a
/// multi-threaded runtime unless the second argument is `current_thread`.
#[macro_export]
macro_rules! provider_conformance {
    ($fixture:expr $(,)?) => {
        $crate::provider_conformance!($fixture, MultiThread);
    };
    ($fixture:expr, current_thread) => {
        $crate::provider_conformance!($fixture, CurrentThread);
    };
    ($fixture:expr, $flavor:ident) => {
        $crate::__provider_cases!(__conformance_tests, provider, ProviderFixture, $flavor, $fixture,);
    };
}

/// Expands to one test for each case of the contract of [`SnapshotStore`](outpost_core::ports::SnapshotStore); the
/// arguments are those of [`provider_conformance!`].
#[macro_export]
macro_rules! store_conformance {
    ($fixture:expr $(,)?) => {
        $crate::store_conformance!($fixture, MultiThread);
    };
    ($fixture:expr, current_thread) => {
        $crate::store_conformance!($fixture, CurrentThread);
    };
    ($fixture:expr, $flavor:ident) => {
        $crate::__store_cases!(__conformance_tests, store, StoreFixture, $flavor, $fixture,);
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __conformance_tests {
    ($kind:ident, $fixture_trait:ident, $flavor:ident, $fixture:expr, $($module:ident { $($id:ident $name:ident)* })*) => {
        $($(
            #[test]
            fn $name() {
                $crate::conformance::run_as_test(
                    $crate::conformance::$kind::CASES,
                    stringify!($name),
                    $crate::conformance::Flavor::$flavor,
                    async {
                        let fixture: Box<dyn $crate::conformance::$kind::$fixture_trait> = Box::new($fixture);
                        fixture
                    },
                );
            }
        )*)*

        #[test]
        fn at_least_one_case_runs() {
            $crate::conformance::at_least_one(
                $crate::conformance::$kind::CASES,
                $crate::conformance::Flavor::$flavor,
                async {
                    let fixture: Box<dyn $crate::conformance::$kind::$fixture_trait> = Box::new($fixture);
                    fixture
                },
            );
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __conformance_table {
    ($fixture_trait:ident, $($module:ident { $($id:ident $name:ident)* })*) => {
        /// The table: one case for each bullet of the contract.
        pub const CASES: &[$crate::conformance::Case<dyn $fixture_trait>] = &[
            $($(
                $crate::conformance::Case {
                    id: stringify!($id),
                    name: stringify!($name),
                    play: |fixture| Box::pin($module::$name(fixture)),
                },
            )*)*
        ];
    };
}
