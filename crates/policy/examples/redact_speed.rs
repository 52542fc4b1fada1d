//! Measures redaction: `cargo run --release -p hermes-policy --example redact_speed [FILE]`.
//!
//! Without a file it generates three kinds of text. With a file it repeats the file to a useful
//! size. Each figure is the best of five runs.
#![expect(clippy::print_stdout, reason = "prints the figures")]

use std::time::Instant;

use hermes_policy::redact::Redactor;
use hermes_types::Secret;

/// The size of one text, and how many of them are redacted.
const TEXT_BYTES: usize = 64 << 10;
const TEXTS: u32 = 512;

fn main() -> std::io::Result<()> {
    let secrets: Vec<Secret> =
        (0..40).map(|i| Secret::new(format!("k{i:02}-Zr8w/q{}+vT==", i * 7919))).collect();
    let samples = match std::env::args_os().nth(1) {
        Some(path) => vec![("file", std::fs::read(path)?)],
        None => vec![
            ("build log", BUILD_LOG.as_bytes().to_vec()),
            ("source code", include_bytes!("redact_speed.rs").to_vec()),
            ("base64", base64_like()),
        ],
    };
    for (name, sample) in samples {
        let sample = String::from_utf8_lossy(&sample);
        let text = sample.repeat(TEXT_BYTES.div_ceil(sample.len().max(1)));
        for (count, secrets) in [(0, &[][..]), (40, &secrets[..])] {
            let speed = (0..5).map(|_| measure(&Redactor::new(secrets), &text)).fold(0.0, f64::max);
            println!("{name:12} {count:2} known values  {speed:6.0} MB/s");
        }
    }
    Ok(())
}

fn measure(redactor: &Redactor, text: &str) -> f64 {
    let start = Instant::now();
    for _ in 0..TEXTS {
        drop(redactor.redact(text));
    }
    text.len() as f64 * f64::from(TEXTS) / 1e6 / start.elapsed().as_secs_f64()
}

/// Not a real image, because only the alphabet matters.
fn base64_like() -> Vec<u8> {
    let alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut state = 1_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        alphabet.get((state >> 58) as usize).copied().unwrap_or(b'A')
    };
    (0..1 << 20).map(|i| if i % 77 == 76 { b'\n' } else { next() }).collect()
}

const BUILD_LOG: &str = "\
   Compiling serde v1.0.219
   Compiling hermes-types v0.1.0 (/work/hermes/crates/types)
warning: unused variable: `token`
  --> crates/agent/src/turn.rs:118:13
   |
118 |         let token = stream.next().await;
   |             ^^^^^ help: if this is intentional, prefix it with an underscore: `_token`
test gate::floor::deleting_the_root_is_refused ... ok
test store::outbox::a_row_is_written_before_the_reply ... ok
2026-11-15T10:00:00.123Z  INFO gateway::telegram: connected latency_ms=41 url=https://api.example.org/v1
commit 3f2a1bc9d8e7f6a5b4c3d2e1f0a9b8c7d6e5f4a3 (HEAD -> main, origin/main)
Author: Ada <ada@example.com>
    Finished `test` profile [unoptimized + debuginfo] target(s) in 12.41s
";
