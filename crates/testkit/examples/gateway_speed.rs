//! What a gateway takes: how soon it is ready, how much memory it needs, how fast it keeps what comes. Prints one line of JSON.
//!
//! `gateway_speed HERMES DIRECTORY`: the program to be measured, and a directory for its homes.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a measurement that fails has no result")]
#![expect(clippy::print_stdout, reason = "the figures are what this is for")]
#![expect(clippy::disallowed_methods, reason = "it starts the program that is measured")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use hermes_testkit::discord::{DiscordServer, ServerOptions, ServerRateLimits, Snowflake};
use hermes_testkit::model::ModelScript;
use hermes_testkit::{ScriptStep, ScriptedModel};
use serde_json::json;

/// Sessions that are active at once.
const SESSIONS: usize = 1_000;
/// Messages that come at once.
const MESSAGES: usize = 4_000;
/// How often a gateway is started.
const STARTS: usize = 10;
const PATIENCE: Duration = Duration::from_secs(120);

struct Hall {
    server: DiscordServer,
    model: ScriptedModel,
    program: PathBuf,
    home: PathBuf,
    chats: Vec<(Snowflake, Snowflake)>,
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let mut args = std::env::args_os().skip(1).map(PathBuf::from);
    let (program, folder) = (args.next().unwrap(), args.next().unwrap());
    let hall = Hall::new(&program, &folder.join("answering"), ScriptStep::Echo("echo: ".to_owned())).await;
    let mut ready = Vec::new();
    let mut gateway = hall.start(&mut ready).await;
    for _ in 1..STARTS {
        end(gateway);
        gateway = hall.start(&mut ready).await;
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    let idle = memory(&gateway);
    hall.say(SESSIONS);
    hall.until(|| hall.answers() >= SESSIONS).await;
    let full = memory(&gateway);
    end(gateway);
    assert_eq!(hall.server.violations(), Vec::<String>::new());
    drop(hall);

    let hall = Hall::new(&program, &folder.join("accepting"), ScriptStep::Silence).await;
    let gateway = hall.start(&mut Vec::new()).await;
    let began = Instant::now();
    hall.say(MESSAGES);
    hall.until(|| hall.kept() >= MESSAGES).await;
    let taken = began.elapsed();
    end(gateway);
    println!(
        "{}",
        json!({
            "ready": ready,
            "idle_mb": idle / 1024.0,
            "session_kib": (full - idle) / SESSIONS as f64,
            "kept_per_second": MESSAGES as f64 / taken.as_secs_f64(),
        })
    );
}

impl Hall {
    async fn new(program: &Path, home: &Path, always: ScriptStep) -> Self {
        let options = ServerOptions {
            rate_limits: ServerRateLimits::Unlimited,
            wait_timeout: PATIENCE,
            ..ServerOptions::default()
        };
        let server = DiscordServer::start(options).await.unwrap();
        let script = ModelScript { always: Some(always), discard_requests: true, ..ModelScript::default() };
        let model = ScriptedModel::start_script(script).unwrap();
        let people: Vec<Snowflake> =
            (0..SESSIONS).map(|number| server.add_user(&format!("p{number}"))).collect();
        server.add_guild("crowd", &people);
        let chats = people.iter().map(|person| (*person, server.dm_channel(*person))).collect();
        fs::create_dir_all(home.join("run")).unwrap();
        let config = format!(
            "model:\n  default: scripted\n  provider: custom\n  base_url: {}\n  context_length: 200000\n\
             discord:\n  allow_all_users: true\n  reactions: false\n",
            model.url()
        );
        fs::write(home.join("config.yaml"), config).unwrap();
        Self { server, model, program: program.to_owned(), home: home.to_owned(), chats }
    }

    /// Starts a gateway and notes when it is connected.
    async fn start(&self, ready: &mut Vec<f64>) -> Child {
        let count = |server: &DiscordServer| server.read(|world| world.identified + world.resumed);
        let before = count(&self.server);
        let began = Instant::now();
        let gateway = Command::new(&self.program)
            .args(["gateway", "run"])
            .env_clear()
            .env("HERMES_HOME", &self.home)
            .env("HOME", &self.home)
            .env("XDG_RUNTIME_DIR", self.home.join("run"))
            .env("PATH", "/usr/bin:/bin")
            .env("DISCORD_BOT_TOKEN", self.server.token())
            .env("DISCORD_API_BASE", self.server.api_base())
            .env("DISCORD_GATEWAY_URL", self.server.gateway_url())
            .env("GATEWAY_MESSAGE_BURST", "100000")
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        self.server
            .wait_for(|world| (world.identified + world.resumed > before).then_some(()))
            .await
            .unwrap();
        ready.push(began.elapsed().as_secs_f64());
        gateway
    }

    /// So many messages, each from the next person.
    fn say(&self, count: usize) {
        for (number, (person, dm)) in (0..count).zip(self.chats.iter().cycle()) {
            self.server.send_text(*person, *dm, &format!("message {number}"));
        }
    }

    fn answers(&self) -> usize {
        self.server
            .read(|world| world.messages.values().filter(|message| message.author == world.bot).count())
    }

    /// How many messages were kept, by the log of who said what.
    fn kept(&self) -> usize {
        let log = fs::read_to_string(self.home.join("logs").join("audit.jsonl")).unwrap_or_default();
        log.lines().filter(|line| line.contains("\"what\":\"letter\"")).count()
    }

    async fn until(&self, is_so: impl Fn() -> bool) {
        let began = Instant::now();
        while !is_so() {
            if began.elapsed() > PATIENCE {
                panic!("{} answers, {} kept, {:?}", self.answers(), self.kept(), self.model.failures());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// Resident KiB of its own.
fn memory(gateway: &Child) -> f64 {
    let text = fs::read_to_string(format!("/proc/{}/smaps_rollup", gateway.id())).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

fn end(mut gateway: Child) {
    gateway.kill().unwrap();
    gateway.wait().unwrap();
}
