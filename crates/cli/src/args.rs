//! The words of the command line.

use std::path::PathBuf;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, Subcommand};
use hermes_config::resolve::PlaceRequest;
use hermes_exec::Audience;
use hermes_gateway::{DeliveryTarget, Platform};
use hermes_types::{BackendName, EnvName};

/// Where help lists what every command takes.
const EVERYWHERE: &str = "Options of every command";

/// An AI agent whose commands run where you choose, with the permission you give.
#[derive(Debug, Parser)]
#[command(name = "hermes", version, infer_long_args = false)]
pub struct Args {
    /// The directory with config.yaml, .env and all state [default: $HERMES_HOME or ~/.hermes]
    #[arg(long, global = true, value_name = "DIR", help_heading = EVERYWHERE)]
    pub home: Option<PathBuf>,

    /// Print one JSON document instead of text
    #[arg(long, global = true, help_heading = EVERYWHERE)]
    pub json: bool,

    /// Show what is going on, on stderr; twice for more
    #[arg(short, long, global = true, action = clap::ArgAction::Count, help_heading = EVERYWHERE)]
    pub verbose: u8,

    /// What to do [default: chat]
    #[command(subcommand)]
    pub command: Option<Command>,

    /// How to chat, where no command is named.
    #[command(flatten, next_help_heading = "Options of a chat")]
    pub chat: ChatArgs,
}

impl Args {
    /// What to do. Without a word it is to chat, and only then may the options of a chat stand alone.
    pub fn take_command(&mut self) -> Result<Command, clap::Error> {
        match self.command.take() {
            None => Ok(Command::Chat(std::mem::take(&mut self.chat))),
            Some(command) if self.chat == ChatArgs::default() => Ok(command),
            Some(_) => Err(Self::command().error(
                ErrorKind::ArgumentConflict,
                "options of a chat stand alone or behind the word chat, as in `hermes chat -q TEXT`",
            )),
        }
    }
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Talk to the agent, as hermes alone does
    Chat(ChatArgs),
    /// Show and change settings
    Config {
        /// What to do with them.
        #[command(subcommand)]
        action: ConfigAction,
    },
    /// Run one command in a place, through the gate
    Exec(ExecArgs),
    /// Serve the proxy of a place until nothing runs there
    #[command(hide = true)]
    KeepProxy(KeepProxyArgs),
    /// Make places ready before anybody asks for one
    #[command(hide = true)]
    FillPool(PlaceArgs),
    /// Open an interactive terminal in a place
    Shell(PlaceArgs),
    /// Look after the places that exist
    Sandbox {
        /// What to do with them.
        #[command(subcommand)]
        action: SandboxAction,
    },
    /// Look after background processes
    Process {
        /// What to do with them.
        #[command(subcommand)]
        action: ProcessAction,
    },
    /// Look at the tools of the agent, and call one as a model would
    Tool {
        /// What to do with them.
        #[command(subcommand)]
        action: ToolAction,
    },
    /// Look after conversations
    Sessions {
        /// What to do with them.
        #[command(subcommand)]
        action: SessionsAction,
    },
    /// Answer questions, look after what was allowed, and ask the gate what it thinks of a command
    Approvals {
        /// What to do.
        #[command(subcommand)]
        action: ApprovalsAction,
    },
    /// Serve chats
    Gateway {
        /// What to do.
        #[command(subcommand)]
        action: GatewayAction,
    },
    /// Say something in a chat that nobody asked for there
    Send(SendArgs),
    /// Let people of chats in
    Pairing {
        /// What to do.
        #[command(subcommand)]
        action: PairingAction,
    },
    /// Show what is set up and what runs, on which backend, with which holes
    Status,
    /// Find what is broken and say how to mend it
    Doctor {
        /// Also run a command on each configured backend, and try to break out of it
        #[arg(long)]
        live: bool,
        /// Say yes where the gate asks about such an attempt; without it, the attempt is not made
        #[arg(long, requires = "live")]
        yes: bool,
    },
    /// Print the completion script of a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

/// A conversation and where its commands run.
#[derive(Debug, Default, PartialEq, Eq, clap::Args)]
pub struct ChatArgs {
    /// Say this, print the answer and end; without it and without a terminal, what comes on standard input is said
    #[arg(
        long,
        short,
        value_name = "TEXT",
        allow_hyphen_values = true,
        alias = "oneshot",
        short_alias = 'z'
    )]
    pub query: Option<String>,
    /// Show a picture with it, a PNG, JPEG, GIF or WebP file; for several say it several times
    #[arg(long = "image", value_name = "FILE")]
    pub images: Vec<PathBuf>,
    /// Go on with a conversation: its id, the beginning of it, its title, or last, which need not be said
    #[arg(
        long, short, value_name = "ID", alias = "continue", short_alias = 'c',
        num_args = 0..=1, default_missing_value = "last"
    )]
    pub resume: Option<String>,
    /// The model that answers [default: model.default]
    #[arg(long, short, value_name = "MODEL")]
    pub model: Option<String>,
    /// Where its commands run [default: terminal.backend]
    #[arg(long, value_name = "BACKEND", value_parser = backend())]
    pub backend: Option<BackendName>,
    /// The session whose directory, variables and functions they get; '' leaves nothing behind [default: this directory]
    #[arg(long, value_name = "KEY")]
    pub session: Option<String>,
    /// Say yes to questions; what is never allowed stays so
    #[arg(long)]
    pub yes: bool,
}

/// Which place.
#[derive(Debug, Clone, Default, PartialEq, Eq, clap::Args)]
pub struct PlaceArgs {
    /// Where to run it [default: terminal.backend]
    #[arg(long, value_name = "BACKEND", value_parser = backend())]
    pub backend: Option<BackendName>,
    /// The image of the place, for backends that run images
    #[arg(long, value_name = "IMAGE")]
    pub image: Option<String>,
    /// The session whose directory, variables and functions it gets; '' leaves nothing behind [default: this directory]
    #[arg(long, value_name = "KEY")]
    pub session: Option<String>,
}

impl PlaceArgs {
    pub(crate) fn request(&self) -> PlaceRequest {
        let Self { backend, image, session } = self.clone();
        PlaceRequest { backend, image, session, audience: Audience::default() }
    }
}

/// A message and where it goes.
#[derive(Debug, clap::Args)]
pub struct SendArgs {
    /// Where to: PLATFORM for its home channel, PLATFORM:CHAT, PLATFORM:CHAT:THREAD, all for every home channel, or local for
    /// nowhere [default: the home channel]
    #[arg(long, short, value_name = "TARGET")]
    pub to: Option<DeliveryTarget>,
    /// What to say; `-` or nothing reads it from standard input
    pub text: Option<String>,
    /// Say what is in this file; `-` is standard input
    #[arg(long, short, value_name = "PATH", conflicts_with = "text")]
    pub file: Option<PathBuf>,
    /// A line to say before it
    #[arg(long, short, value_name = "LINE")]
    pub subject: Option<String>,
    /// List the home channels instead
    #[arg(long, short, conflicts_with_all = ["to", "text", "file", "subject"])]
    pub list: bool,
    /// Say nothing when all is well
    #[arg(long, short)]
    pub quiet: bool,
}

/// What to do with the gateway.
#[derive(Debug, Clone, Copy, Subcommand)]
pub enum GatewayAction {
    /// Serve chats until it is told to stop
    Run,
    /// Show whether it runs and how its platforms are
    Status,
}

/// What to do with tools.
#[derive(Debug, Subcommand)]
pub enum ToolAction {
    /// List the tools, as a model is told of them
    #[command(visible_alias = "list")]
    Ls,
    /// Call a tool and print what a model would be told
    Call(ToolCallArgs),
}

/// A call of a tool.
#[derive(Debug, clap::Args)]
pub struct ToolCallArgs {
    /// Which tool
    pub name: String,
    /// Its arguments, a JSON object; `-` reads it from standard input
    #[arg(value_name = "JSON", default_value = "{}")]
    pub arguments: String,
    /// Where it works.
    #[command(flatten)]
    pub place: PlaceArgs,
    /// Say yes to questions; what is never allowed stays so
    #[arg(long)]
    pub yes: bool,
}

/// What to do with places.
#[derive(Debug, Subcommand)]
pub enum SandboxAction {
    /// List the places that exist
    #[command(visible_alias = "list")]
    Ls,
    /// Show everything about one place
    Show {
        /// Its name, the beginning of it, or its session
        id: String,
    },
    /// End places and remove their files
    Rm {
        /// Their names, the beginnings of them, or their sessions
        #[arg(required = true)]
        ids: Vec<String>,
        /// Also where something runs or somebody is connected
        #[arg(long, short)]
        force: bool,
    },
    /// Get an image from its registry, also a newer one of the same name
    Pull {
        /// Its name, as in registry.example/owner/image:tag
        image: String,
    },
    /// End every place that nobody uses; kept files stay
    Prune {
        /// Also remove the kept files of every place that is not in use
        #[arg(long)]
        files: bool,
    },
}

/// What to do with background processes.
#[derive(Debug, Subcommand)]
pub enum ProcessAction {
    /// List background processes, running and ended
    #[command(visible_alias = "list")]
    Ls,
    /// Print the output of one
    Log {
        /// Its id
        id: String,
        /// Go on until it ends
        #[arg(long, short)]
        follow: bool,
        /// Start at this byte; a negative number counts from the end
        #[arg(long, value_name = "BYTES", allow_hyphen_values = true, default_value_t = 0)]
        offset: i64,
        /// Print so many bytes at most
        #[arg(long, value_name = "BYTES")]
        limit: Option<u64>,
    },
    /// Wait until one has ended, and exit as it did
    Wait {
        /// Its id
        id: String,
        /// Give up after so many seconds, with exit code 124
        #[arg(long, value_name = "SECONDS")]
        timeout: Option<u64>,
    },
    /// Kill one with everything it started
    Kill {
        /// Its id
        id: String,
    },
    /// Type a line into one, through the gate
    Write {
        /// Its id
        id: String,
        /// The line [default: what comes on standard input, as it is]
        #[arg(allow_hyphen_values = true)]
        text: Option<String>,
        /// End its input after that
        #[arg(long)]
        close: bool,
        /// Say yes to questions; what is never allowed stays so
        #[arg(long)]
        yes: bool,
    },
}

/// One command and where it runs.
#[derive(Debug, clap::Args)]
pub struct ExecArgs {
    /// Where it runs.
    #[command(flatten)]
    pub place: PlaceArgs,
    /// Another directory, for this command only
    #[arg(long, value_name = "DIR")]
    pub cwd: Option<String>,
    /// Seconds it may run [default: terminal.timeout]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub timeout: Option<u64>,
    /// A variable of yours that it may see; can be given more than once
    #[arg(long = "env", value_name = "NAME")]
    pub env: Vec<EnvName>,
    /// Hand it what comes on standard input
    #[arg(long)]
    pub stdin: bool,
    /// Let it run on by itself
    #[arg(long)]
    pub background: bool,
    /// Say yes to questions; what is never allowed stays so
    #[arg(long)]
    pub yes: bool,
    /// Only print what would be asked for to make the place; nothing is made and nothing runs
    #[arg(long)]
    pub dry_run: bool,
    /// The command
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

/// The names of backends, for completions and help to list.
fn backend() -> impl TypedValueParser<Value = BackendName> {
    let names = BackendName::ALL.map(|backend| match backend {
        BackendName::Singularity => PossibleValue::new(backend.as_str()).alias("apptainer"),
        backend => PossibleValue::new(backend.as_str()),
    });
    PossibleValuesParser::new(names).try_map(|word| word.parse::<BackendName>())
}

fn seconds(text: &str) -> Result<u64, &'static str> {
    text.parse().ok().filter(|seconds| *seconds > 0).ok_or("expected a whole number from 1 up")
}

/// Which place.
#[derive(Debug, clap::Args)]
pub struct KeepProxyArgs {
    /// Where the sockets of places are
    pub run: PathBuf,
    /// The name of the place
    pub place: String,
}

/// What to do with conversations. They are named by their id, the beginning of it, their title, or `last`.
#[derive(Debug, Subcommand)]
pub enum SessionsAction {
    /// List conversations, the one last used first
    #[command(visible_alias = "list")]
    Ls {
        /// How many
        #[arg(long, short = 'n', value_name = "COUNT", default_value_t = 20)]
        limit: usize,
        /// Go on after this one, the last of the list before
        #[arg(long, value_name = "ID")]
        after: Option<String>,
        /// Only those of this door or channel, as in cli or discord
        #[arg(long, value_name = "WORD")]
        source: Option<String>,
        /// Only those that were put away
        #[arg(long, conflicts_with = "all")]
        archived: bool,
        /// Also those that were put away, were continued in another one, or are a part of another one
        #[arg(long)]
        all: bool,
    },
    /// Show what was said in one
    Show {
        /// Its id, the beginning of it, its title, or last
        id: String,
        /// How many messages, from the end
        #[arg(long, short = 'n', value_name = "COUNT", default_value_t = 50)]
        limit: u32,
        /// Also what was taken back
        #[arg(long)]
        all: bool,
    },
    /// Find what was said
    Search {
        /// Words, "phrases", beginnings with *, OR and NOT; anything else is taken as text
        #[arg(required = true, allow_hyphen_values = true)]
        text: Vec<String>,
        /// How many messages
        #[arg(long, short = 'n', value_name = "COUNT", default_value_t = 20)]
        limit: usize,
        /// Leave out so many, those of the pages before
        #[arg(long, value_name = "COUNT", default_value_t = 0)]
        skip: usize,
        /// Only those of this door or channel, as in cli or discord
        #[arg(long, value_name = "WORD")]
        source: Option<String>,
    },
    /// Print whole conversations, one line of JSON each
    Export {
        /// Their ids, the beginnings of them, their titles, or last
        #[arg(required_unless_present = "all")]
        ids: Vec<String>,
        /// All of them
        #[arg(long, conflicts_with = "ids")]
        all: bool,
    },
    /// Remove conversations for good
    #[command(visible_alias = "delete")]
    Rm {
        /// Their ids, the beginnings of them, their titles, or last
        #[arg(required = true)]
        ids: Vec<String>,
    },
    /// Remove conversations that ended and are old, and give their space back
    Prune {
        /// Those that began more than so many days ago
        #[arg(long, value_name = "DAYS", default_value_t = 90)]
        older_than: u32,
        /// Only list what would be removed
        #[arg(long)]
        dry_run: bool,
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
}

/// What to do about questions.
#[derive(Debug, Subcommand)]
pub enum ApprovalsAction {
    /// List the questions that wait for an answer
    #[command(visible_alias = "list")]
    Ls,
    /// Say yes to a question, this time
    Approve {
        /// Its id, or the beginning of it
        id: String,
        /// And to the same again in its session
        #[arg(long, conflicts_with = "always")]
        session: bool,
        /// And to the same again from now on
        #[arg(long)]
        always: bool,
    },
    /// Say no to a question
    Deny {
        /// Its id, or the beginning of it
        id: String,
        /// Why, for the model to read
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
    /// List what may happen again without a question
    Grants,
    /// Take back what was allowed
    Revoke {
        /// Its id, or the beginning of it
        id: String,
    },
    /// Say whether a command would run, be asked about or be refused, and why; nothing is run
    Test {
        /// The command; - reads commands from standard input, separated by NUL, and prints a line of JSON for each
        #[arg(allow_hyphen_values = true)]
        command: String,
        /// Where it would run [default: terminal.backend]
        #[arg(long, value_name = "BACKEND", value_parser = backend())]
        backend: Option<BackendName>,
    },
}

/// What to do about people of chats.
#[derive(Debug, Subcommand)]
pub enum PairingAction {
    /// List those who wait to be let in, and those who were
    #[command(visible_alias = "list")]
    Ls,
    /// Let somebody in who was given a code
    Approve {
        /// Where they are, as in discord
        #[arg(value_parser = platform())]
        platform: Platform,
        /// The code
        code: String,
    },
    /// Let somebody in no longer
    Revoke {
        /// Where they are, as in discord
        #[arg(value_parser = platform())]
        platform: Platform,
        /// What the platform calls them, as `hermes pairing ls` shows it
        user: String,
    },
    /// Forget those who wait; their codes are worth nothing then
    ClearPending {
        /// Only those of this platform
        #[arg(value_parser = platform())]
        platform: Option<Platform>,
    },
}

/// The names of platforms, for completions and help to list.
fn platform() -> impl TypedValueParser<Value = Platform> {
    PossibleValuesParser::new(Platform::ALL.map(Platform::as_str))
        .try_map(|word| Platform::from_name(&word).ok_or("there is no such platform"))
}

/// What to do with settings.
#[derive(Debug, Subcommand)]
pub enum ConfigAction {
    /// Print where config.yaml is
    Path,
    /// Print the settings and where each comes from
    Show {
        /// Also those that nobody has set
        #[arg(long)]
        all: bool,
    },
    /// Print one setting
    Get {
        /// The key, as in terminal.backend
        key: String,
    },
    /// Change one setting; a secret goes to .env
    Set {
        /// The key, as in terminal.backend
        key: String,
        /// The value; lists and maps as JSON; - reads it from standard input
        #[arg(allow_hyphen_values = true)]
        value: String,
    },
    /// Remove one setting, so that its default counts again
    Unset {
        /// The key, as in terminal.backend
        key: String,
    },
    /// Tell what a setting does, its value, where it comes from and what that hides
    Explain {
        /// The key, as in terminal.backend
        key: String,
    },
    /// Look for mistakes in config.yaml, .env and the environment
    Check,
    /// Bring an older config.yaml up to date, with a backup
    Migrate {
        /// Only show what would change
        #[arg(long)]
        dry_run: bool,
    },
    /// Open config.yaml in your editor, then check it
    Edit,
    /// Print the JSON Schema of config.yaml
    Schema {
        /// Print the reference page instead
        #[arg(long)]
        markdown: bool,
    },
}
