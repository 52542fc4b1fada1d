//! The command line: commands, arguments and their help.

use std::path::PathBuf;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, Subcommand};
use hermes_config::resolve::PlaceRequest;
use hermes_exec::Audience;
use hermes_gateway::{DeliveryTarget, Platform};
use hermes_types::{BackendName, EnvName};

/// The heading of options that every command accepts.
const GLOBAL_OPTIONS: &str = "Global options";

/// Shown after the help of `hermes`.
const EXAMPLES: &str = "\
Examples:
  hermes                         chat in this terminal
  hermes -q 'explain main.rs'    print one answer and exit
  hermes exec -- make test       run one command
  hermes status                  show what is configured
  hermes doctor                  check the setup";

/// An AI agent that runs commands on the backend you choose, with your approval
#[derive(Debug, Parser)]
#[command(name = "hermes", version, infer_long_args = false, after_help = EXAMPLES)]
pub struct Args {
    /// Set the directory of config.yaml, .env and all state [default: $HERMES_HOME or ~/.hermes]
    #[arg(long, global = true, value_name = "DIR", help_heading = GLOBAL_OPTIONS)]
    pub home: Option<PathBuf>,

    /// Print one JSON document instead of text
    #[arg(long, global = true, help_heading = GLOBAL_OPTIONS)]
    pub json: bool,

    /// Log to stderr; repeat for more detail
    #[arg(short, long, global = true, action = clap::ArgAction::Count, help_heading = GLOBAL_OPTIONS)]
    pub verbose: u8,

    /// The command to run [default: chat]
    #[command(subcommand)]
    pub command: Option<Command>,

    #[command(flatten, next_help_heading = "Chat options")]
    pub chat: ChatArgs,
}

impl Args {
    /// Returns the command, which is `chat` by default. Chat options without a command are only
    /// valid then.
    pub fn take_command(&mut self) -> Result<Command, clap::Error> {
        match self.command.take() {
            None => Ok(Command::Chat(std::mem::take(&mut self.chat))),
            Some(command) if self.chat == ChatArgs::default() => Ok(command),
            Some(_) => Err(Self::command().error(
                ErrorKind::ArgumentConflict,
                "chat options cannot be used with another command; use `hermes chat -q TEXT`",
            )),
        }
    }
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Chat with the agent (the default command)
    Chat(ChatArgs),
    /// Show and change the configuration
    #[command(subcommand)]
    Config(ConfigAction),
    /// Run one command on a backend, with approval checks
    Exec(ExecArgs),
    /// Serve the proxy of an environment until nothing runs in it
    #[command(hide = true)]
    KeepProxy(KeepProxyArgs),
    /// Start containers in advance
    #[command(hide = true)]
    FillPool(PlaceArgs),
    /// Open an interactive shell in an environment
    Shell(PlaceArgs),
    /// List and manage environments
    #[command(subcommand)]
    Sandbox(SandboxAction),
    /// List and manage background processes
    #[command(subcommand)]
    Process(ProcessAction),
    /// List the tools of the agent, or call one as the model would
    #[command(subcommand)]
    Tool(ToolAction),
    /// List, search and manage conversations
    #[command(subcommand)]
    Sessions(SessionsAction),
    /// Answer approval questions, manage grants, and test commands
    #[command(subcommand)]
    Approvals(ApprovalsAction),
    /// Run the chat gateway
    #[command(subcommand)]
    Gateway(GatewayAction),
    /// Send a message to a chat
    Send(SendArgs),
    /// Manage who may use the bot
    #[command(subcommand)]
    Pairing(PairingAction),
    /// Show configuration, backends, environments, exposures and platform health
    Status,
    /// Check the setup and suggest fixes
    Doctor {
        /// Also run a command on each configured backend and try to break out of it
        #[arg(long)]
        live: bool,
        /// Approve break-out attempts that need approval; they are skipped otherwise
        #[arg(long, requires = "live")]
        yes: bool,
    },
    /// Print a shell completion script
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

#[derive(Debug, Default, PartialEq, Eq, clap::Args)]
pub struct ChatArgs {
    /// Send TEXT, print the answer and exit [default without a terminal: read standard input]
    #[arg(
        long,
        short,
        value_name = "TEXT",
        allow_hyphen_values = true,
        alias = "oneshot",
        short_alias = 'z'
    )]
    pub query: Option<String>,
    /// Attach a PNG, JPEG, GIF or WebP image; repeat for several
    #[arg(long = "image", value_name = "FILE")]
    pub images: Vec<PathBuf>,
    /// Resume a conversation by id, id prefix or title [default: the most recent]
    #[arg(
        long, short, value_name = "ID", alias = "continue", short_alias = 'c',
        num_args = 0..=1, default_missing_value = "last"
    )]
    pub resume: Option<String>,
    /// Set the model [default: model.default]
    #[arg(long, short, value_name = "MODEL")]
    pub model: Option<String>,
    /// Set the backend that runs commands [default: terminal.backend]
    #[arg(long, value_name = "BACKEND", value_parser = backend())]
    pub backend: Option<BackendName>,
    /// Use the directory, variables and functions of session KEY; '' for a throw-away session
    /// [default: the current directory]
    #[arg(long, value_name = "KEY")]
    pub session: Option<String>,
    /// Approve all questions; commands that are never allowed stay blocked
    #[arg(long)]
    pub yes: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, clap::Args)]
pub struct PlaceArgs {
    /// Set the backend [default: terminal.backend]
    #[arg(long, value_name = "BACKEND", value_parser = backend())]
    pub backend: Option<BackendName>,
    /// Set the container image, for backends that use images [default: the image key of the
    /// backend]
    #[arg(long, value_name = "IMAGE")]
    pub image: Option<String>,
    /// Use the directory, variables and functions of session KEY; '' for a throw-away session
    /// [default: the current directory]
    #[arg(long, value_name = "KEY")]
    pub session: Option<String>,
}

impl PlaceArgs {
    pub(crate) fn request(&self) -> PlaceRequest {
        let Self { backend, image, session } = self.clone();
        PlaceRequest { backend, image, session, audience: Audience::default() }
    }
}

#[derive(Debug, clap::Args)]
pub struct SendArgs {
    /// Set the target: PLATFORM (its home channel), PLATFORM:CHAT, PLATFORM:CHAT:THREAD, all (every
    /// home channel) or local (do not send) [default: the home channel]
    #[arg(long, short, value_name = "TARGET")]
    pub to: Option<DeliveryTarget>,
    /// The message [default: read standard input, as with `-`]
    pub text: Option<String>,
    /// Send the content of a file; `-` is standard input
    #[arg(long, short, value_name = "PATH", conflicts_with = "text")]
    pub file: Option<PathBuf>,
    /// Add a line before the message
    #[arg(long, short, value_name = "LINE")]
    pub subject: Option<String>,
    /// List the home channels and exit
    #[arg(long, short, conflicts_with_all = ["to", "text", "file", "subject"])]
    pub list: bool,
    /// Print nothing on success
    #[arg(long, short)]
    pub quiet: bool,
}

#[derive(Debug, Clone, Copy, Subcommand)]
pub enum GatewayAction {
    /// Serve chats until stopped
    Run,
    /// Show whether the gateway runs and the state of its platforms
    Status,
}

#[derive(Debug, Subcommand)]
pub enum ToolAction {
    /// List the tools as the model sees them
    #[command(visible_alias = "list")]
    Ls,
    /// Call a tool and print the result the model would get
    Call(ToolCallArgs),
}

#[derive(Debug, clap::Args)]
pub struct ToolCallArgs {
    /// The name of the tool
    pub name: String,
    /// The arguments as a JSON object; `-` reads standard input
    #[arg(value_name = "JSON", default_value = "{}")]
    pub arguments: String,
    #[command(flatten)]
    pub place: PlaceArgs,
    /// Approve all questions; commands that are never allowed stay blocked
    #[arg(long)]
    pub yes: bool,
}

#[derive(Debug, Subcommand)]
pub enum SandboxAction {
    /// List environments
    #[command(visible_alias = "list")]
    Ls,
    /// Show one environment in detail
    Show {
        /// Name, name prefix or session
        id: String,
    },
    /// Remove environments and their files
    Rm {
        /// Names, name prefixes or sessions
        #[arg(required_unless_present = "all")]
        ids: Vec<String>,
        /// Remove all environments
        #[arg(long, conflicts_with = "ids")]
        all: bool,
        /// Also remove environments that are in use
        #[arg(long, short)]
        force: bool,
    },
    /// Pull an image from its registry, or update it
    Pull {
        /// The image name, such as registry.example/owner/image:tag
        image: String,
    },
    /// Remove idle environments; keep their persistent files
    Prune {
        /// Also remove the persistent files of every environment that is not in use
        #[arg(long)]
        files: bool,
    },
}

#[derive(Debug, Subcommand)]
pub enum ProcessAction {
    /// List background processes, running and ended
    #[command(visible_alias = "list")]
    Ls,
    /// Print the output of a process
    Log {
        /// The process id
        id: String,
        /// Follow the output until the process ends
        #[arg(long, short)]
        follow: bool,
        /// Start at this byte; a negative number counts from the end [default: 0]
        #[arg(long, value_name = "BYTES", allow_hyphen_values = true, default_value_t = 0)]
        offset: i64,
        /// Print at most this many bytes
        #[arg(long, value_name = "BYTES")]
        limit: Option<u64>,
    },
    /// Wait for a process to end and exit with its exit code
    Wait {
        /// The process id
        id: String,
        /// Stop waiting after this many seconds, with exit code 124
        #[arg(long, value_name = "SECONDS")]
        timeout: Option<u64>,
    },
    /// Kill a process and its children
    Kill {
        /// The process id
        id: String,
    },
    /// Write a line to the input of a process, with approval checks
    Write {
        /// The process id
        id: String,
        /// The line [default: standard input, unchanged]
        #[arg(allow_hyphen_values = true)]
        text: Option<String>,
        /// Close the input afterwards
        #[arg(long)]
        close: bool,
        /// Approve all questions; commands that are never allowed stay blocked
        #[arg(long)]
        yes: bool,
    },
}

#[derive(Debug, clap::Args)]
pub struct ExecArgs {
    #[command(flatten)]
    pub place: PlaceArgs,
    /// Run in this directory [default: the directory of the session]
    #[arg(long, value_name = "DIR")]
    pub cwd: Option<String>,
    /// Stop the command after this many seconds [default: terminal.timeout]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub timeout: Option<u64>,
    /// Pass a variable of your environment; repeat for several
    #[arg(long = "env", value_name = "NAME")]
    pub env: Vec<EnvName>,
    /// Pass standard input to the command
    #[arg(long)]
    pub stdin: bool,
    /// Run in the background
    #[arg(long)]
    pub background: bool,
    /// Approve all questions; commands that are never allowed stay blocked
    #[arg(long)]
    pub yes: bool,
    /// Print the request that would create the environment; create and run nothing
    #[arg(long)]
    pub dry_run: bool,
    /// The command
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

/// Parses a backend; lists the names in help and completions.
fn backend() -> impl TypedValueParser<Value = BackendName> {
    let names = BackendName::ALL.iter().map(|backend| match backend {
        BackendName::Singularity => PossibleValue::new(backend.as_str()).alias("apptainer"),
        backend => PossibleValue::new(backend.as_str()),
    });
    PossibleValuesParser::new(names).try_map(|word| word.parse::<BackendName>())
}

fn seconds(text: &str) -> Result<u64, &'static str> {
    text.parse().ok().filter(|seconds| *seconds > 0).ok_or("expected a whole number, at least 1")
}

#[derive(Debug, clap::Args)]
pub struct KeepProxyArgs {
    /// The run directory
    pub run: PathBuf,
    /// The name of the environment
    pub place: String,
}

#[derive(Debug, Subcommand)]
pub enum SessionsAction {
    /// List conversations, most recent first
    #[command(visible_alias = "list")]
    Ls {
        /// Show at most this many
        #[arg(long, short = 'n', value_name = "COUNT", default_value_t = 20)]
        limit: usize,
        /// Continue after this conversation, the last of the previous page
        #[arg(long, value_name = "ID")]
        after: Option<String>,
        /// Only conversations from this source, such as cli or discord
        #[arg(long, value_name = "WORD")]
        source: Option<String>,
    },
    /// Show the messages of a conversation
    Show {
        /// Id, id prefix, title or `last`
        id: String,
        /// Show at most this many messages, from the end
        #[arg(long, short = 'n', value_name = "COUNT", default_value_t = 50)]
        limit: u32,
        /// Also undone messages
        #[arg(long)]
        all: bool,
    },
    /// Search messages
    Search {
        /// Words, "phrases", prefix*, OR and NOT
        #[arg(required = true)]
        text: Vec<String>,
        /// Show at most this many messages
        #[arg(long, short = 'n', value_name = "COUNT", default_value_t = 20)]
        limit: usize,
        /// Skip this many messages of previous pages
        #[arg(long, value_name = "COUNT", default_value_t = 0)]
        skip: usize,
        /// Only conversations from this source, such as cli or discord
        #[arg(long, value_name = "WORD")]
        source: Option<String>,
    },
    /// Print whole conversations, one JSON document per line
    Export {
        /// Ids, id prefixes, titles or `last`
        #[arg(required_unless_present = "all")]
        ids: Vec<String>,
        /// Export all conversations
        #[arg(long, conflicts_with = "ids")]
        all: bool,
    },
    /// Delete conversations
    #[command(visible_alias = "delete")]
    Rm {
        /// Ids, id prefixes, titles or `last`
        #[arg(required = true)]
        ids: Vec<String>,
    },
    /// Delete old conversations that ended
    Prune {
        /// Delete conversations that started more than this many days ago
        #[arg(long, value_name = "DAYS", default_value_t = 90)]
        older_than: u32,
        /// List the conversations without deleting them
        #[arg(long)]
        dry_run: bool,
        /// Do not ask for confirmation
        #[arg(long)]
        yes: bool,
    },
}

#[derive(Debug, Subcommand)]
pub enum ApprovalsAction {
    /// List pending questions
    #[command(visible_alias = "list")]
    Ls,
    /// Approve a question once
    Approve {
        /// Id or id prefix
        id: String,
        /// Also approve the same command later in its session
        #[arg(long, conflicts_with = "always")]
        session: bool,
        /// Also approve the same command from now on
        #[arg(long)]
        always: bool,
    },
    /// Deny a question
    Deny {
        /// Id or id prefix
        id: String,
        /// The reason, which is shown to the model
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
    /// List grants
    Grants,
    /// Revoke a grant
    Revoke {
        /// Id or id prefix
        id: String,
    },
    /// Show whether a command would be allowed, need approval or be denied, and why; run nothing
    Test {
        /// The command; `-` reads commands from standard input, separated by NUL, and prints one
        /// line of JSON for each
        #[arg(allow_hyphen_values = true)]
        command: String,
        /// Set the backend [default: terminal.backend]
        #[arg(long, value_name = "BACKEND", value_parser = backend())]
        backend: Option<BackendName>,
    },
}

#[derive(Debug, Subcommand)]
pub enum PairingAction {
    /// List pending requests and approved users
    #[command(visible_alias = "list")]
    Ls,
    /// Approve a user by pairing code
    Approve {
        /// The platform, such as discord
        #[arg(value_parser = platform())]
        platform: Platform,
        /// The pairing code
        code: String,
    },
    /// Revoke access
    Revoke {
        /// The platform, such as discord
        #[arg(value_parser = platform())]
        platform: Platform,
        /// The user id, as shown by `hermes pairing ls`
        user: String,
    },
    /// Remove all pending requests and invalidate their codes
    ClearPending {
        /// Only requests of this platform
        #[arg(value_parser = platform())]
        platform: Option<Platform>,
    },
}

/// Parses a platform; lists the names in help and completions.
fn platform() -> impl TypedValueParser<Value = Platform> {
    PossibleValuesParser::new(Platform::ALL.map(Platform::as_str))
        .try_map(|word| Platform::from_name(&word).ok_or("unknown platform"))
}

#[derive(Debug, Subcommand)]
pub enum ConfigAction {
    /// Print the path of config.yaml
    Path,
    /// Print all settings and their sources
    Show {
        /// Also show keys with default values
        #[arg(long)]
        all: bool,
    },
    /// Print the value of a key
    Get {
        /// The key, such as terminal.backend
        key: String,
    },
    /// Set a key; secrets go to .env
    Set {
        /// The key, such as terminal.backend
        key: String,
        /// The value; lists and maps as JSON; `-` reads standard input
        #[arg(allow_hyphen_values = true)]
        value: String,
    },
    /// Remove a key, so that its default applies
    Unset {
        /// The key, such as terminal.backend
        key: String,
    },
    /// Explain a key: its meaning, value, source and the values it overrides
    Explain {
        /// The key, such as terminal.backend
        key: String,
    },
    /// Check config.yaml, .env and the environment for mistakes
    Check,
    /// Update config.yaml to the current version, with a backup
    Migrate {
        /// Show the changes without writing them
        #[arg(long)]
        dry_run: bool,
    },
    /// Open config.yaml in your editor and check it afterwards
    Edit,
    /// Print the JSON Schema of config.yaml
    Schema {
        /// Print the reference page instead
        #[arg(long)]
        markdown: bool,
    },
}
