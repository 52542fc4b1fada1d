//! A home with a gateway, between a strict platform and a scripted model.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use hermes_testkit::discord::{DiscordServer, Snowflake};
use hermes_testkit::fake_platform::{BotMessage, UserMessage};
use hermes_testkit::model::{BodyDelivery, ModelScript, ScriptedReply};
use hermes_testkit::{FakePlatform, ReplyItem, ScriptStep, ScriptedModel};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Limit after which a test gives up; nothing is asserted about it.
const TEST_TIMEOUT: Duration = Duration::from_secs(60);

/// A gateway with its home, platform and model.
pub(crate) struct PlatformEnv<V: FakePlatform> {
    pub(crate) server: V,
    pub(crate) model: ScriptedModel,
    folder: TempDir,
    gateway: Option<Child>,
    /// Size of a separate disk for the home, which lives as long as the gateway.
    disk: Option<&'static str>,
    /// Additional environment variables.
    variables: Vec<(&'static str, String)>,
    /// A group with the bot, Ann and Bob.
    pub(crate) channel: V::Id,
    pub(crate) ann: V::Id,
    pub(crate) bob: V::Id,
}

/// The environment for Discord-specific tests.
pub(crate) type GatewayEnv = PlatformEnv<DiscordServer>;

impl<V: FakePlatform> PlatformEnv<V> {
    /// With these scripted replies, open to everyone.
    pub(crate) async fn new(steps: impl IntoIterator<Item = ScriptStep>) -> Self {
        let script = ModelScript { steps: steps.into_iter().collect(), ..ModelScript::default() };
        Self::with(script, &Self::allow_everyone()).await
    }

    /// With these scripted replies, then an echo.
    pub(crate) async fn then_echo(steps: impl IntoIterator<Item = ScriptStep>) -> Self {
        Self::with(Self::echo_script(steps), &Self::allow_everyone()).await
    }

    /// With an echo model.
    pub(crate) async fn echo() -> Self {
        Self::then_echo([]).await
    }

    /// A script that ends with an echo step.
    pub(crate) fn echo_script(steps: impl IntoIterator<Item = ScriptStep>) -> ModelScript {
        let always = Some(ScriptStep::Echo("echo: ".to_owned()));
        ModelScript { steps: steps.into_iter().collect(), always, ..ModelScript::default() }
    }

    /// The configuration that gives everyone access.
    pub(crate) fn allow_everyone() -> String {
        format!("{}:\n  allow_all_users: true\n", V::NAME)
    }

    pub(crate) async fn with(script: ModelScript, config: &str) -> Self {
        let server = V::launch(TEST_TIMEOUT).await.unwrap();
        let model = ScriptedModel::start_script(script).unwrap();
        let (ann, bob) = (server.add_person("ann"), server.add_person("bob"));
        let channel = server.add_group("square", &[ann, bob]);
        let folder = tempfile::tempdir().unwrap();
        for name in ["home", "run", "work", "owner"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        let url = model.url();
        let config = format!("model:\n  default: scripted\n  provider: custom\n  base_url: {url}\n{config}");
        fs::write(folder.path().join("home/config.yaml"), config).unwrap();
        Self { server, model, folder, gateway: None, disk: None, variables: Vec::new(), channel, ann, bob }
    }

    /// Sets an environment variable of the program.
    pub(crate) fn set_env(mut self, name: &'static str, value: impl ToString) -> Self {
        self.variables.push((name, value.to_string()));
        self
    }

    /// Puts the home on a separate disk.
    pub(crate) fn on_disk(mut self, size: &'static str) -> Self {
        self.disk = Some(size);
        self
    }

    /// A file of the home, as the gateway sees it.
    pub(crate) fn gateway_path(&self, name: &str) -> PathBuf {
        let home = self.path("home");
        PathBuf::from(format!("/proc/{}/root{}", self.pid().as_raw_nonzero(), home.display())).join(name)
    }

    /// The gateway's process id.
    pub(crate) fn pid(&self) -> Pid {
        let id = self.gateway.as_ref().unwrap().id();
        Pid::from_raw(i32::try_from(id).unwrap()).unwrap()
    }

    /// Starts the gateway.
    pub(crate) async fn open(mut self) -> Self {
        self.start().await;
        self
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The program with this home.
    #[expect(clippy::disallowed_methods, reason = "the program under test")]
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hermes"));
        command
            .args(args)
            .env_clear()
            .env("HERMES_HOME", self.path("home"))
            .env("XDG_RUNTIME_DIR", self.path("run"))
            .env("HOME", self.path("owner"))
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .envs(self.server.environment())
            .env("GATEWAY_MESSAGE_BURST", "1000")
            .envs(self.variables.iter().cloned())
            .current_dir(self.path("work"));
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    /// Sets a config key before the gateway starts.
    pub(crate) fn configure(&self, key: &str, value: &str) {
        let set = self.run(&["config", "set", key, value]);
        assert!(set.status.success(), "{}", String::from_utf8_lossy(&set.stderr));
    }

    /// Starts the gateway and waits until it is connected.
    pub(crate) async fn start(&mut self) {
        let before = self.server.connection_count();
        self.launch();
        self.wait("it connects", |server| (server.connection_count() > before).then_some(())).await;
    }

    /// Starts the gateway.
    pub(crate) fn launch(&mut self) {
        let log = fs::File::options().create(true).append(true).open(self.path("log")).unwrap();
        let mut command = match self.disk {
            Some(size) => self.within_mounts(size),
            None => self.command(&["gateway", "run"]),
        };
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().unwrap();
        self.gateway = Some(child);
    }

    /// The gateway with its home on a disk of this size.
    #[expect(clippy::disallowed_methods, reason = "a file system of its own needs another process")]
    fn within_mounts(&self, size: &str) -> Command {
        let own = self.command(&["gateway", "run"]);
        let mut command = Command::new("unshare");
        command
            .args(["--user", "--map-root-user", "--mount", "sh", "-ec"])
            .arg(
                "cp -a \"$HERMES_HOME\" \"$SEED\"; mount -t tmpfs -o size=\"$SIZE\" none \"$HERMES_HOME\"
                 cp -a \"$SEED/.\" \"$HERMES_HOME\"; exec \"$PROGRAM\" gateway run",
            )
            .env_clear()
            .envs(own.get_envs().filter_map(|(name, value)| Some((name, value?))))
            .env("SEED", self.path("seed"))
            .env("SIZE", size)
            .env("PROGRAM", own.get_program())
            .current_dir(self.path("work"));
        command
    }

    /// Kills the gateway with SIGKILL.
    pub(crate) fn kill(&mut self) {
        let mut child = self.gateway.take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Stops the gateway with SIGTERM and waits for it.
    pub(crate) fn stop(&mut self) -> Option<i32> {
        kill_process(self.pid(), Signal::TERM).unwrap();
        let mut child = self.gateway.take().unwrap();
        let began = Instant::now();
        loop {
            if let Some(status) = child.try_wait().unwrap() {
                return status.code();
            }
            assert!(began.elapsed() < TEST_TIMEOUT, "the gateway does not end: {}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The gateway's standard error.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    /// The platform's state in `hermes gateway status`.
    pub(crate) fn state(&self) -> String {
        let status = self.run(&["gateway", "status", "--json"]);
        let facts: Value = serde_json::from_slice(&status.stdout).unwrap();
        facts["platforms"][V::NAME]["state"].as_str().unwrap_or_default().to_owned()
    }

    /// Waits until `look` finds something on the platform.
    pub(crate) async fn wait<T>(&self, what: &str, look: impl Fn(&V) -> Option<T>) -> T {
        let mut changes = self.server.subscribe();
        let found = async {
            loop {
                if let Some(found) = look(&self.server) {
                    return found;
                }
                changes.changed().await.unwrap();
            }
        };
        match tokio::time::timeout(TEST_TIMEOUT, found).await {
            Ok(found) => found,
            Err(_) => {
                panic!("waited in vain: {what}; faults: {:?}\n{}", self.server.violations(), self.log())
            }
        }
    }

    /// Waits for this many messages of the bot.
    pub(crate) async fn wait_for_replies(&self, chat: V::Id, count: usize) -> Vec<String> {
        self.wait(&format!("{count} messages"), |server| {
            let said: Vec<String> = server.bot_messages(chat).into_iter().map(|seen| seen.text).collect();
            (said.len() >= count).then_some(said)
        })
        .await
    }

    /// Waits for a matching message of the bot.
    pub(crate) async fn wait_for_message(
        &self,
        chat: V::Id,
        what: &str,
        is_it: impl Fn(&BotMessage<V::Id>) -> bool,
    ) -> BotMessage<V::Id> {
        self.wait(what, |server| server.bot_messages(chat).into_iter().find(&is_it)).await
    }

    /// The bot's messages in a chat so far.
    pub(crate) fn replies(&self, chat: V::Id) -> Vec<String> {
        self.server.bot_messages(chat).into_iter().map(|seen| seen.text).collect()
    }

    /// Sends a message in a chat.
    pub(crate) fn send(&self, who: V::Id, chat: V::Id, text: &str) -> V::Id {
        self.server.send(who, chat, UserMessage::new(text))
    }

    /// Mentions the bot.
    pub(crate) fn mention(&self, who: V::Id, chat: V::Id, text: &str) -> V::Id {
        self.server.send(who, chat, UserMessage::mention(text))
    }

    /// Waits for the chat in which a message is answered, which may be a thread.
    pub(crate) async fn reply_chat(&self, message: V::Id) -> V::Id {
        self.wait("a place for the answer", |server| server.reply_chat(message)).await
    }

    /// The bodies of all model requests.
    pub(crate) fn model_requests(&self) -> Vec<Value> {
        self.model.received().into_iter().map(|request| request.json).collect()
    }

    /// Stops everything and asserts that the servers saw no violations.
    pub(crate) async fn close(mut self) {
        if self.gateway.is_some() {
            assert_eq!(self.stop(), Some(0), "{}", self.log());
        }
        let listed: Value = serde_json::from_slice(&self.run(&["sandbox", "ls", "--json"]).stdout).unwrap();
        let names: Vec<&str> = listed["places"]
            .as_array()
            .unwrap()
            .iter()
            .map(|place| place["name"].as_str().unwrap())
            .collect();
        if !names.is_empty() {
            let removed = self.run(&[&["sandbox", "rm", "--force"], &names[..]].concat());
            assert!(removed.status.success(), "{}", String::from_utf8_lossy(&removed.stderr));
        }
        assert_eq!(self.server.violations(), Vec::<String>::new(), "{}", self.log());
        assert_eq!(self.model.failures(), Vec::<String>::new());
    }
}

impl GatewayEnv {
    /// Makes Ann an admin in direct messages.
    pub(crate) fn with_admin(self) -> Self {
        let ann = self.ann;
        self.set_env("DISCORD_ALLOW_ADMIN_FROM", ann)
    }
}

impl<V: FakePlatform> Drop for PlatformEnv<V> {
    fn drop(&mut self) {
        if let Some(mut child) = self.gateway.take() {
            let _dead = child.kill();
            let _buried = child.wait();
        }
    }
}

/// A terminal tool call.
pub(crate) fn terminal_call(id: &str, command: &str) -> ScriptStep {
    ScriptStep::reply([ReplyItem::Call {
        id: id.to_owned(),
        name: "terminal".to_owned(),
        arguments: json!({ "command": command }),
    }])
}

/// A model that is slowly generating its first reply, with the busy policy `steer`; and the chat.
pub(crate) async fn steering_env() -> (GatewayEnv, Snowflake) {
    let slow = ScriptStep::Reply(ScriptedReply {
        items: vec![ReplyItem::Text("first".to_owned())],
        delivery: BodyDelivery { pause_ms: 400, ..Default::default() },
        ..Default::default()
    });
    let config = "discord:\n  allow_all_users: true\ndisplay:\n  busy_input_mode: steer\n";
    let env = GatewayEnv::with(GatewayEnv::echo_script([slow]), config).await.open().await;
    let dm = env.server.dm_channel(env.ann);
    env.server.send_text(env.ann, dm, "begin");
    eventually("the model is asked", || env.model_requests().len() == 1);
    (env, dm)
}

pub(crate) use hermes_testkit::eventually;
