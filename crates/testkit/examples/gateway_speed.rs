//! Measures a gateway: startup time, memory, and the rate of accepted messages. Prints one line of
//! JSON.
//!
//! Usage: `gateway_speed HERMES DIRECTORY`, with the program to measure and a directory for its
//! homes.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a failed measurement has no result")]
#![expect(clippy::print_stdout, reason = "the figures go to standard output")]
#![expect(clippy::disallowed_methods, reason = "it starts the measured program")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use hermes_testkit::discord::{DiscordServer, ServerOptions, ServerRateLimits, Snowflake};
use hermes_testkit::model::ModelScript;
use hermes_testkit::{ScriptStep, ScriptedModel};
use serde_json::json;

/// Concurrent sessions.
const SESSION_COUNT: usize = 1_000;
/// Messages sent at once.
const MESSAGE_COUNT: usize = 4_000;
const START_COUNT: usize = 10;
const WAIT_TIMEOUT: Duration = Duration::from_secs(120);

struct GatewayEnv {
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
    let env =
        GatewayEnv::new(&program, &folder.join("answering"), ScriptStep::Echo("echo: ".to_owned())).await;
    let mut ready = Vec::new();
    let mut gateway = env.start(&mut ready).await;
    for _ in 1..START_COUNT {
        stop(gateway);
        gateway = env.start(&mut ready).await;
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    let idle = memory_kib(&gateway);
    env.send_messages(SESSION_COUNT);
    env.wait_until(|| env.reply_count() >= SESSION_COUNT).await;
    let full = memory_kib(&gateway);
    stop(gateway);
    assert_eq!(env.server.violations(), Vec::<String>::new());
    drop(env);

    let env = GatewayEnv::new(&program, &folder.join("accepting"), ScriptStep::Silence).await;
    let gateway = env.start(&mut Vec::new()).await;
    let started = Instant::now();
    env.send_messages(MESSAGE_COUNT);
    env.wait_until(|| env.stored_count() >= MESSAGE_COUNT).await;
    let elapsed = started.elapsed();
    stop(gateway);
    println!(
        "{}",
        json!({
            "ready": ready,
            "idle_mb": idle / 1024.0,
            "session_kib": (full - idle) / SESSION_COUNT as f64,
            "kept_per_second": MESSAGE_COUNT as f64 / elapsed.as_secs_f64(),
        })
    );
}

impl GatewayEnv {
    async fn new(program: &Path, home: &Path, always: ScriptStep) -> Self {
        let options = ServerOptions {
            rate_limits: ServerRateLimits::Unlimited,
            wait_timeout: WAIT_TIMEOUT,
            ..ServerOptions::default()
        };
        let server = DiscordServer::start(options).await.unwrap();
        let script = ModelScript { always: Some(always), discard_requests: true, ..ModelScript::default() };
        let model = ScriptedModel::start_script(script).unwrap();
        let people: Vec<Snowflake> =
            (0..SESSION_COUNT).map(|number| server.add_user(&format!("p{number}"))).collect();
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

    /// Starts a gateway and records the time until it is connected.
    async fn start(&self, ready: &mut Vec<f64>) -> Child {
        let count = |server: &DiscordServer| server.read(|world| world.identified + world.resumed);
        let before = count(&self.server);
        let started = Instant::now();
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
        ready.push(started.elapsed().as_secs_f64());
        gateway
    }

    /// Sends messages, each from the next user.
    fn send_messages(&self, count: usize) {
        for (number, (person, dm)) in (0..count).zip(self.chats.iter().cycle()) {
            self.server.send_text(*person, *dm, &format!("message {number}"));
        }
    }

    fn reply_count(&self) -> usize {
        self.server
            .read(|world| world.messages.values().filter(|message| message.author == world.bot).count())
    }

    /// The number of stored messages, by the audit log.
    fn stored_count(&self) -> usize {
        let log = fs::read_to_string(self.home.join("logs").join("audit.jsonl")).unwrap_or_default();
        log.lines().filter(|line| line.contains("\"what\":\"letter\"")).count()
    }

    async fn wait_until(&self, condition: impl Fn() -> bool) {
        let started = Instant::now();
        while !condition() {
            if started.elapsed() > WAIT_TIMEOUT {
                panic!(
                    "{} replies, {} stored, {:?}",
                    self.reply_count(),
                    self.stored_count(),
                    self.model.failures()
                );
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// Proportional set size in KiB.
fn memory_kib(gateway: &Child) -> f64 {
    let text = fs::read_to_string(format!("/proc/{}/smaps_rollup", gateway.id())).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

fn stop(mut gateway: Child) {
    gateway.kill().unwrap();
    gateway.wait().unwrap();
}
