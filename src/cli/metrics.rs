//! `/metrics`: a report in Prometheus' text format.

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use outpost_core::engine::Report;

type Label = [(&'static str, &'static str); 1];

/// The text of `report`.
pub(super) fn text(report: &Report) -> String {
    let mut registry = Registry::with_prefix("outpost");
    gauges(&mut registry, report);
    counters(&mut registry, report);
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = encode(&mut text, &registry);
    text
}

fn gauges(registry: &mut Registry, report: &Report) {
    let mut gauge = |name: &str, help: &str, value: usize| {
        let gauge = Gauge::<i64>::default();
        gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
        registry.register(name, help, gauge);
    };
    gauge(
        "ready",
        "1 when the queue and the backend are read completely and in time",
        usize::from(report.ready().is_ok()),
    );
    gauge("sessions_listed", "Sessions in the queue", report.listed);
    gauge("sessions_claimed", "Sessions whose claim is ours", report.claimed);
    gauge("sessions_waiting", "Sessions that wait for room", report.waiting);
    gauge("sandbox_limit", "The most sandboxes that may exist at once", report.limit);
    gauge("snapshots", "Snapshots that the backend holds", report.snapshots);
    gauge("snapshots_undeletable", "Snapshots that the backend cannot delete", report.undeletable);
    gauge("steps_in_flight", "Steps that are under way", report.steps);
    let waiting = Gauge::<f64, std::sync::atomic::AtomicU64>::default();
    waiting.set(report.oldest_waiting.unwrap_or_default().as_secs_f64());
    registry.register("oldest_waiting_seconds", "How long the oldest waiting session has waited", waiting);
    let sandboxes = Family::<Label, Gauge>::default();
    let counts = report.sandboxes;
    for (state, count) in [
        ("starting", counts.starting),
        ("running", counts.running),
        ("exited", counts.exited),
        ("stopping", counts.stopping),
        ("failed", counts.failed),
    ] {
        sandboxes.get_or_create(&[("state", state)]).set(i64::try_from(count).unwrap_or(i64::MAX));
    }
    registry.register("sandboxes", "Sandboxes by state", sandboxes);
    let reading = Family::<Label, Gauge<f64, std::sync::atomic::AtomicU64>>::default();
    for (what, health) in [("queue", &report.queue), ("backend", &report.backend)] {
        if let Some(at) = health.last_success {
            reading.get_or_create(&[("what", what)]).set(at.as_millisecond() as f64 / 1000.0);
        }
    }
    registry.register("last_complete_reading_timestamp_seconds", "When it was last read completely", reading);
}

fn counters(registry: &mut Registry, report: &Report) {
    let counters = report.counters;
    for (name, help, value) in [
        ("starts", "Starts that succeeded", counters.starts),
        ("start_failures", "Starts that failed", counters.start_failures),
        ("restores", "Starts that restored a snapshot", counters.restores),
        ("unusable_snapshots", "Restores that can never succeed", counters.unusable_snapshots),
        ("saves", "Saves that were recorded", counters.saves),
        ("removals", "Sandboxes that were removed", counters.removals),
        ("crashes", "Workers that ended although their session went on", counters.crashes),
        ("claims_lost", "Claims that were lost to another", counters.claims_lost),
        ("step_failures", "Steps that failed", counters.step_failures),
        ("queue_lists", "Complete lists of the queue", counters.lists),
        ("foreign_rows", "Rows that were ignored because they are another outpost's", counters.foreign_rows),
    ] {
        registry.register(name, help, ConstCounter::new(value));
    }
}
