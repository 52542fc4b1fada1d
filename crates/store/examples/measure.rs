//! Measures the store: `cargo run --release -p hermes-store --example measure
//! [MESSAGES]`.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a measuring program")]

use std::time::{Duration, Instant};

use hermes_store::{NewMessage, NewSession, SearchQuery, SessionId, SessionPrompt, Store, TurnStep, Viewer};
use hermes_types::{Message, Person, SessionKey, Timestamp};

fn at(seconds: u64) -> Timestamp {
    Timestamp::from_seconds(1_800_000_000 + seconds)
}

fn message_step(message: Message, at: Timestamp) -> TurnStep {
    TurnStep { messages: vec![NewMessage::new(message, at)], ..TurnStep::default() }
}

/// A deterministic random number generator.
struct TestRng(u64);

impl TestRng {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % limit as u64).unwrap()
    }

    /// Words of a large vocabulary with a natural frequency distribution.
    fn text(&mut self, words: usize) -> String {
        let mut text = String::new();
        for _ in 0..words {
            let rank = self.below(30_000).min(self.below(30_000)).min(self.below(30_000));
            text.push_str(&word(rank));
            text.push(if self.below(12) == 0 { '\n' } else { ' ' });
        }
        text
    }
}

fn quantiles(mut times: Vec<Duration>) -> String {
    times.sort_unstable();
    let at = |share: usize| times[(times.len() - 1) * share / 1_000].as_secs_f64() * 1e3;
    format!("p50 {:.3} ms, p99 {:.3} ms, p99.9 {:.3} ms, max {:.3} ms", at(500), at(990), at(999), at(1_000))
}

async fn create(store: &Store) -> SessionId {
    let new = NewSession {
        key: SessionKey::new("measure"),
        source: "cli".to_owned(),
        person: Person::new("cli"),
        model: "m".to_owned(),
        provider: "p".to_owned(),
        prompt: SessionPrompt { text: "You are Hermes. ".repeat(1_000), tools: "{}".repeat(8_000) },
        cwd: None,
    };
    store.create_session(new, at(0)).await.unwrap()
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let count: usize = std::env::args().nth(1).map_or(100_000, |text| text.parse().unwrap());
    let folder = tempfile::tempdir_in(".").unwrap();
    let path = folder.path().join(hermes_store::FILE_NAME);
    let mut rng = TestRng(0x9e37_79b9_7f4a_7c15);

    let begun = Instant::now();
    let store = Store::open(&path).await.unwrap();
    println!("creating a database: {:.2} ms", begun.elapsed().as_secs_f64() * 1e3);

    let mut session = create(&store).await;
    let mut times = Vec::new();
    for number in 0..3_000 {
        let words = 20 + rng.below(200);
        let step = message_step(Message::user(rng.text(words)), at(number));
        // Simulates the pause between two steps, in which a model answers or a command runs.
        std::thread::sleep(Duration::from_millis(10));
        let begun = Instant::now();
        store.append_step(&session, step).await.unwrap();
        times.push(begun.elapsed());
    }
    println!("append, a step at a time: {}", quantiles(times));

    let (mut times, mut bytes) = (Vec::new(), 0);
    for number in 0..count {
        if number % 200 == 0 {
            session = create(&store).await;
        }
        let words = 20 + rng.below(200);
        let text = format!("the {}", rng.text(words));
        bytes += text.len();
        let step = message_step(Message::user(text), at(number as u64));
        let begun = Instant::now();
        store.append_step(&session, step).await.unwrap();
        times.push(begun.elapsed());
    }
    println!("{count} messages, {:.1} MB of text", bytes as f64 / 1e6);
    println!("append, one after another: {}", quantiles(times));

    let size = store.size();
    println!("on disk: {:.1} MB, {:.2} bytes a byte of text", size as f64 / 1e6, size as f64 / bytes as f64);
    for (kind, text) in [
        ("a rare word", word(25_000)),
        ("a common word", word(3)),
        ("a word of every message", "the".to_owned()),
        ("two words", format!("{} {}", word(200), word(400))),
        ("a beginning", format!("{}*", word(5_000))),
        ("an emoji", "🚀".to_owned()),
        ("a missing bigram", "数据库".to_owned()),
    ] {
        let mut times = Vec::new();
        let mut hits = 0;
        for _ in 0..20 {
            let search = SearchQuery { text: text.clone(), limit: 20, ..SearchQuery::default() };
            let begun = Instant::now();
            hits = store.search(&Viewer::Owner, search).await.unwrap().len();
            times.push(begun.elapsed());
        }
        println!("search for {kind}, {hits} hits: {}", quantiles(times));
    }
    // A killed process leaves the file and its WAL.
    let crashed = folder.path().join("crashed.db");
    for ending in ["", "-wal"] {
        std::fs::copy(format!("{}{ending}", path.display()), format!("{}{ending}", crashed.display()))
            .unwrap();
    }
    let log = std::fs::metadata(folder.path().join("crashed.db-wal")).unwrap().len();
    let begun = Instant::now();
    let recovered = Store::open(&crashed).await.unwrap();
    let took = begun.elapsed().as_secs_f64() * 1e3;
    println!("opening after a crash, with a WAL of {:.1} MB: {took:.2} ms", log as f64 / 1e6);
    recovered.close().await;
    let begun = Instant::now();
    let history = store.history(&session).await.unwrap().len();
    println!("history of {history} messages: {:.2} ms", begun.elapsed().as_secs_f64() * 1e3);
    let begun = Instant::now();
    store.close().await;
    println!("closing: {:.2} ms", begun.elapsed().as_secs_f64() * 1e3);

    let (mut opens, mut firsts) = (Vec::new(), Vec::new());
    for _ in 0..200 {
        let begun = Instant::now();
        let store = Store::open(&path).await.unwrap();
        opens.push(begun.elapsed());
        store.session(&session).await.unwrap();
        firsts.push(begun.elapsed());
        store.close().await;
    }
    println!("opening: {}", quantiles(opens));
    println!("opening and the first read: {}", quantiles(firsts));
}

/// The word of a rank.
fn word(rank: usize) -> String {
    let syllables = ["ka", "to", "ri", "men", "sol", "da", "ver", "lin", "po", "ex", "un", "st"];
    let (mut number, mut word) = (rank + 7, String::new());
    while number > 0 {
        word.push_str(syllables[number % 12]);
        number /= 12;
    }
    word
}
