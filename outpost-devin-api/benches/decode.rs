//! Decoding a page of 200 rows.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use serde_json::json;

fn page() -> Vec<u8> {
    let row = |number: usize| {
        json!({
            "metadata": {"session_id": format!("devin-{number:032x}"), "outpost_id": "outpost_env-0123456789abcdef",
                         "created_at": 1_781_050_000, "updated_at": 1_781_050_000.25},
            "spec": {"kind": "resume", "platform": "linux", "remote_binary_sha": null,
                     "network_policy": {"enabled": true, "allow": [{"hostname": "*.example.com"}, {"ipv4": "10.0.0.0/8"}]}},
            "status": {"phase": "claimed", "acceptor_id": "desk-1-0123456789abcdef0123", "claim_deadline": "2026-06-10T00:06:40Z",
                       "session_status": "running", "connect_token": null, "gateway_url": null},
        })
    };
    let rows: Vec<_> = (0..200).map(row).collect();
    json!({"items": rows, "cursor": "c", "has_next_page": true, "total": 10_000}).to_string().into_bytes()
}

fn bench(criterion: &mut Criterion) {
    let page = page();
    let mut group = criterion.benchmark_group("decode");
    group.throughput(Throughput::Bytes(page.len() as u64));
    group.bench_function("a page of 200 rows", |bencher| {
        bencher.iter(|| assert_eq!(outpost_devin_api::decode_page(std::hint::black_box(&page)), Some(200)));
    });
    group.finish();
}

criterion_group!(benches, bench);
criterion_main!(benches);
