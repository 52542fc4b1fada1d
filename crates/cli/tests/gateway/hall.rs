//! A home with a gateway, a Discord server and a scripted model.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use hermes_testkit::discord::{Id, Limits, Options, Server, World};
use hermes_testkit::model::Script;
use hermes_testkit::{Said, ScriptedModel, Step};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;

/// How long something may take before a test gives up. Nothing is asserted about it.
const PATIENCE: Duration = Duration::from_secs(60);

/// Everything of one test.
pub(crate) struct Hall {
    pub(crate) server: Server,
    pub(crate) model: ScriptedModel,
    folder: TempDir,
    gateway: Option<Child>,
    /// What the program is told besides.
    variables: Vec<(&'static str, String)>,
    /// A channel that the bot is in.
    pub(crate) channel: Id,
    pub(crate) ann: Id,
    pub(crate) bob: Id,
}

impl Hall {
    /// With a model that says these things, and everybody let in.
    pub(crate) async fn new(steps: impl IntoIterator<Item = Step>) -> Self {
        let script = Script { steps: steps.into_iter().collect(), ..Script::default() };
        Self::with(script, "discord:\n  allow_all_users: true\n").await
    }

    /// With a model that repeats what it is told.
    pub(crate) async fn echo() -> Self {
        let script = Script { always: Some(Step::Echo("echo: ".to_owned())), ..Script::default() };
        Self::with(script, "discord:\n  allow_all_users: true\n").await
    }

    pub(crate) async fn with(script: Script, config: &str) -> Self {
        let options = Options {
            limits: Limits::Wide,
            heartbeat: Duration::from_secs(2),
            patience: PATIENCE,
            ..Options::default()
        };
        let server = Server::start(options).await.unwrap();
        let model = ScriptedModel::play(script).unwrap();
        let (ann, bob) = (server.user("ann"), server.user("bob"));
        let guild = server.guild("town", &[ann, bob]);
        let channel = server.channel(guild, "square");
        let folder = tempfile::tempdir().unwrap();
        for name in ["home", "run", "work", "owner"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        let url = model.url();
        let config = format!("model:\n  default: scripted\n  provider: custom\n  base_url: {url}\n{config}");
        fs::write(folder.path().join("home/config.yaml"), config).unwrap();
        Self { server, model, folder, gateway: None, variables: Vec::new(), channel, ann, bob }
    }

    /// Tells the program something else by its environment.
    pub(crate) fn tell(mut self, name: &'static str, value: impl ToString) -> Self {
        self.variables.push((name, value.to_string()));
        self
    }

    /// The same home, with Ann looking after it in direct messages.
    pub(crate) fn with_admin(self) -> Self {
        let ann = self.ann;
        self.tell("DISCORD_ALLOW_ADMIN_FROM", ann)
    }

    /// The gateway's process.
    pub(crate) fn pid(&self) -> Pid {
        let id = self.gateway.as_ref().unwrap().id();
        Pid::from_raw(i32::try_from(id).unwrap()).unwrap()
    }

    /// A gateway that serves.
    pub(crate) async fn open(mut self) -> Self {
        self.start().await;
        self
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The program in this home.
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
            .env("DISCORD_BOT_TOKEN", self.server.token())
            .env("DISCORD_API_BASE", self.server.api_base())
            .env("DISCORD_GATEWAY_URL", self.server.gateway_url())
            .env("GATEWAY_MESSAGE_BURST", "1000")
            .envs(self.variables.iter().cloned())
            .current_dir(self.path("work"));
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    /// Sets a key before the gateway is started.
    pub(crate) fn configure(&self, key: &str, value: &str) {
        let set = self.run(&["config", "set", key, value]);
        assert!(set.status.success(), "{}", String::from_utf8_lossy(&set.stderr));
    }

    /// Starts the gateway and waits until it is connected.
    pub(crate) async fn start(&mut self) {
        let before = self.server.look(|world| world.identified + world.resumed);
        self.launch();
        if let Err(error) =
            self.server.wait_for(|world| (world.identified + world.resumed > before).then_some(())).await
        {
            panic!("{error}\n{}", self.log());
        }
    }

    /// Starts the gateway.
    pub(crate) fn launch(&mut self) {
        let log = fs::File::options().create(true).append(true).open(self.path("log")).unwrap();
        let child = self
            .command(&["gateway", "run"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        self.gateway = Some(child);
    }

    /// Kills it, as if the machine had failed.
    pub(crate) fn kill(&mut self) {
        let mut child = self.gateway.take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Asks it to end, and waits for that.
    pub(crate) fn stop(&mut self) -> Option<i32> {
        kill_process(self.pid(), Signal::TERM).unwrap();
        let mut child = self.gateway.take().unwrap();
        let began = Instant::now();
        loop {
            if let Some(status) = child.try_wait().unwrap() {
                return status.code();
            }
            assert!(began.elapsed() < PATIENCE, "the gateway does not end: {}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// What the gateway said.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    /// Waits until the bot has said so much in a channel, and gives it.
    pub(crate) async fn said(&self, channel: Id, count: usize) -> Vec<String> {
        let said = self
            .server
            .wait_for(|world| {
                let said = words(world, channel);
                (said.len() >= count).then_some(said)
            })
            .await;
        match said {
            Ok(said) => said,
            Err(error) => panic!("{error}: {:?}\n{}", self.heard(channel), self.log()),
        }
    }

    /// What the bot said there so far.
    pub(crate) fn heard(&self, channel: Id) -> Vec<String> {
        self.server.look(|world| words(world, channel))
    }

    /// Calls the bot by its name.
    pub(crate) fn call(&self, who: Id, channel: Id, text: &str) -> Id {
        self.server.say(who, channel, &format!("<@{}> {text}", self.server.bot()))
    }

    /// The thread that was opened under a message.
    pub(crate) async fn thread(&self, message: Id) -> Id {
        let opened = self.server.wait_for(|world| world.messages.get(&message)?.thread).await;
        match opened {
            Ok(thread) => thread,
            Err(error) => panic!("{error}\n{}", self.log()),
        }
    }

    /// What requests of the model said last.
    pub(crate) fn told(&self) -> Vec<Value> {
        self.model.received().into_iter().map(|request| request.json).collect()
    }

    /// Ends everything and finds the servers content.
    pub(crate) async fn close(mut self) {
        if self.gateway.is_some() {
            assert_eq!(self.stop(), Some(0), "{}", self.log());
        }
        let removed = self.run(&["sandbox", "prune", "--files"]);
        assert!(removed.status.success(), "{}", String::from_utf8_lossy(&removed.stderr));
        assert_eq!(self.server.faults(), Vec::<String>::new(), "{}", self.log());
        assert_eq!(self.model.failures(), Vec::<String>::new());
    }
}

impl Drop for Hall {
    fn drop(&mut self) {
        if let Some(mut child) = self.gateway.take() {
            let _dead = child.kill();
            let _buried = child.wait();
        }
    }
}

/// What the bot wrote in a channel. What Discord itself writes in its name is left out.
pub(crate) fn words(world: &World, channel: Id) -> Vec<String> {
    let written =
        world.said_by_bot(channel).into_iter().filter(|message| matches!(message.kind, 0 | 19 | 20));
    written.map(|message| message.content.clone()).collect()
}

/// A call of the terminal.
pub(crate) fn runs(id: &str, command: &str) -> Step {
    Step::says([Said::Call {
        id: id.to_owned(),
        name: "terminal".to_owned(),
        arguments: json!({ "command": command }),
    }])
}

/// Waits until something is so.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
