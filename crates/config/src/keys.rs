//! Every key of the configuration.
//!
//! A default here is the one of the Python program, so that a file written for it means the same. The text
//! above a key is what `config explain` and the reference page print.

use hermes_exec::backend::docker::run_args::value::Gpus;
use hermes_policy::user_rule::CommandPattern;
use hermes_types::{BackendName, EnvName, Network, Secret, Volume};

use super::define::{ConfigKey, section};
use super::layers::LayerReader;
use super::setting::{
    ByteSize, ChannelMap, CommaList, EnvMap, ExtraArgs, Fallbacks, Hour, Passthrough, Servers, TextMap,
    TmpfsMap, choice,
};

/// The image of a container place when nothing else is said.
const IMAGE: &str = "nikolaik/python-nodejs:python3.11-nodejs20";

/// The version of the file's layout that this program writes and reads.
pub const CONFIG_VERSION: u64 = 33;

choice! {
    /// Which HOME a command on this machine gets.
    HomeMode {
        /// The real one, or the one of the hermes home when hermes itself runs in a container.
        Auto = "auto",
        /// Always the owner's.
        Real = "real",
        /// The `home` directory of the hermes home.
        Profile = "profile",
    }
}

choice! {
    /// How a Modal sandbox is reached.
    ModalMode {
        /// Managed where the account has it, else direct.
        Auto = "auto",
        /// With the owner's own Modal token.
        Direct = "direct",
        /// Through the managed service.
        Managed = "managed",
    }
}

choice! {
    /// Who decides about a command that a rule matched.
    ApprovalMode {
        /// A person.
        Manual = "manual",
        /// A model first, a person when it is unsure.
        Smart = "smart",
        /// Nobody: only the hard floor and the owner's own rules hold.
        Off = "off" | "false" | "no",
    }
}

choice! {
    /// How much a model thinks.
    Effort {
        /// As the provider likes.
        Auto = "auto" | "",
        /// Not at all.
        None = "none",
        /// The least.
        Minimal = "minimal",
        /// A little.
        Low = "low",
        /// As usual.
        Medium = "medium",
        /// Much.
        High = "high",
        /// As much as it can.
        Xhigh = "xhigh",
    }
}

choice! {
    /// How pictures come to a model.
    ImageInput {
        /// They are shown to it, unless its server does not take them.
        Auto = "auto",
        /// They are shown to it, and a server that does not take them fails.
        Native = "native",
        /// Not at all: it reads where the files are.
        Text = "text",
    }
}

choice! {
    /// What happens to a question when nobody can answer it.
    Unattended {
        /// It is refused.
        Deny = "deny",
        /// It is allowed.
        Approve = "approve",
    }
}

choice! {
    /// Where `execute_code` runs its script.
    CodeMode {
        /// In the session's directory, with the project's own interpreter.
        Project = "project",
        /// In an empty directory of its own.
        Strict = "strict",
    }
}

choice! {
    /// How much is written to the log.
    Level {
        /// Failures only.
        Error = "error",
        /// Failures and warnings.
        Warn = "warn" | "warning",
        /// What happened.
        Info = "info",
        /// And why.
        Debug = "debug",
        /// Everything.
        Trace = "trace",
    }
}

choice! {
    /// Which message a reply is attached to.
    ReplyTo {
        /// None.
        Off = "off" | "false" | "no",
        /// The first part of an answer.
        First = "first",
        /// Every part of an answer.
        All = "all",
    }
}

choice! {
    /// Whether other bots are heard.
    Bots {
        /// Never.
        None = "none" | "false" | "no" | "off",
        /// Only when they mention this bot.
        Mentions = "mentions",
        /// Always.
        All = "all" | "true" | "yes" | "on",
    }
}

choice! {
    /// What somebody gets who writes to the bot and was not let in.
    Strangers {
        /// A code that the owner can let them in with.
        Pair = "pair",
        /// Nothing.
        Ignore = "ignore",
    }
}

choice! {
    /// Who shares a place in chats.
    PlaceScope {
        /// Nobody: each session has its own.
        Session = "session",
        /// All sessions of one person.
        User = "user",
        /// All sessions of one chat.
        Chat = "chat",
        /// Everybody.
        Shared = "shared",
    }
}

choice! {
    /// What is done about a message in a chat where something is under way.
    BusyInput {
        /// It waits for its turn.
        Queue = "queue",
        /// It ends what is under way.
        Interrupt = "interrupt",
        /// The model is told of it with the next result of a tool.
        Steer = "steer",
    }
}

choice! {
    /// What a chat is told about the tools of a turn that takes long.
    ToolProgress {
        /// Nothing.
        Off = "off" | "false" | "no",
        /// The name of the tool that is used.
        New = "new",
        /// And what it is used for.
        All = "all" | "verbose" | "true" | "yes" | "on",
    }
}

choice! {
    /// When a conversation in a chat is over that nobody went on with.
    ResetMode {
        /// Never.
        None = "none" | "off" | "false" | "no",
        /// Once a day.
        Daily = "daily",
        /// After some time without a word.
        Idle = "idle",
        /// Whichever comes first.
        Both = "both",
    }
}

choice! {
    /// How slash commands are registered with Discord.
    CommandSync {
        /// Only when they changed.
        Safe = "safe",
        /// At every start, replacing what is there.
        Bulk = "bulk",
        /// Not at all.
        Off = "off" | "false" | "no",
    }
}

section! {
    /// Where commands run and what they get.
    Terminal "terminal." {
        /// Where commands run: local, sandbox, docker, ssh, singularity, modal, daytona or kubernetes.
        backend: BackendName = BackendName::Local, "TERMINAL_ENV", also "terminal.env_type";
        /// The directory a session starts in. `.` is the directory hermes was started in, and `/workspace` in a
        /// sandbox, where directories of the owner's home mean the same.
        cwd: String = ".".into(), "TERMINAL_CWD";
        /// Seconds a command may run before it is stopped.
        timeout: u64 = 180, "TERMINAL_TIMEOUT", at_least 1;
        /// The longest timeout, in seconds, a call may ask for in the foreground.
        max_foreground_timeout: u64 = 600, "TERMINAL_MAX_FOREGROUND_TIMEOUT", at_least 1;
        /// Seconds a place may stay idle before it is removed. Never counted while a command runs.
        lifetime_seconds: u64 = 300, "TERMINAL_LIFETIME_SECONDS", at_least 1;
        /// How many places there may be at once. One more waits until another ends; the one that has been idle for
        /// longest makes way.
        max_places: u64 = 256, "TERMINAL_MAX_PLACES", at_least 1;
        /// What a place reaches over the network: full, none or proxy (public hosts only, for programs that heed
        /// HTTP_PROXY and its like). Default: proxy for sandbox, full elsewhere. local can only be full.
        network: Option<Network> = None, "TERMINAL_NETWORK";
        /// Which HOME a command on this machine gets. `real` is the owner's; `profile` is the directory `home` in the
        /// hermes home, if it is there, with the owner's in `HERMES_REAL_HOME`; `auto` is `profile` when hermes itself
        /// runs in a container, else `real`.
        home_mode: HomeMode = HomeMode::Auto, "TERMINAL_HOME_MODE";
        /// Variables of the hermes process that every command may see besides the small base. Keys of model
        /// providers, tokens of messaging platforms and the like are refused here; `hermes exec --env` gives one
        /// to a single command.
        env_passthrough: Passthrough = Passthrough::default(), "TERMINAL_ENV_PASSTHROUGH";
        /// Files below the hermes home that containers see, read-only, below `/root/.hermes`.
        credential_files: Vec<String> = Vec::new(), "TERMINAL_CREDENTIAL_FILES";
        /// Files a local session sources at its start, instead of the usual ones. What they export stays, except
        /// for the names that `env_passthrough` refuses.
        shell_init_files: Vec<String> = Vec::new(), "TERMINAL_SHELL_INIT_FILES";
        /// Whether a local session sources `~/.profile`, `~/.bash_profile` and `~/.bashrc` at its start.
        auto_source_bashrc: bool = true, "TERMINAL_AUTO_SOURCE_BASHRC";
        /// Where the kept files of places are. Default: `sandboxes` in the hermes home.
        sandbox_dir: Option<String> = None, "TERMINAL_SANDBOX_DIR";
        /// The password given to `sudo`. Set and empty means: try an empty one, never ask.
        sudo_password: Option<Secret> = None, "SUDO_PASSWORD", blank Value;
        /// Processors a place may use, 0 for no limit.
        container_cpu: f64 = 1.0, "TERMINAL_CONTAINER_CPU";
        /// Memory of a place in MB, 0 for no limit.
        container_memory: u64 = 5120, "TERMINAL_CONTAINER_MEMORY";
        /// Disk of a place in MB, 0 for no limit.
        container_disk: u64 = 51200, "TERMINAL_CONTAINER_DISK";
        /// Processes and threads of a place, 0 for no limit.
        container_pids: u64 = 256, "TERMINAL_CONTAINER_PIDS";
        /// Whether the home and the workspace of a place are kept when it ends.
        container_persistent: bool = true, "TERMINAL_CONTAINER_PERSISTENT";
        /// The image of a Docker or Podman place.
        docker_image: String = IMAGE.into(), "TERMINAL_DOCKER_IMAGE";
        /// Seconds that fetching an image may take.
        docker_pull_timeout: u64 = 1800, "TERMINAL_DOCKER_PULL_TIMEOUT", at_least 1;
        /// Variables handed to commands in the container, by name. Values come from the process environment,
        /// then from `.env`. Whatever is listed here can be read by every command in the container.
        docker_forward_env: Vec<EnvName> = Vec::new(), "TERMINAL_DOCKER_FORWARD_ENV";
        /// Variables with literal values for commands in the container.
        docker_env: EnvMap = EnvMap::default(), "TERMINAL_DOCKER_ENV";
        /// Mounts, each `source:target[:options]`. A writable mount gives commands that directory of the host.
        docker_volumes: Vec<Volume> = Vec::new(), "TERMINAL_DOCKER_VOLUMES";
        /// Whether containers see only what is listed in `docker_volumes`, and not the skills, the caches and the
        /// credential files of the hermes home.
        strict_mounts: bool = false, "TERMINAL_STRICT_MOUNTS";
        /// Whether containers have a network at all. False is as if `network` were none.
        docker_network: bool = true, "TERMINAL_DOCKER_NETWORK";
        /// Whether the start directory is mounted at `/workspace`.
        docker_mount_cwd_to_workspace: bool = false, "TERMINAL_DOCKER_MOUNT_CWD_TO_WORKSPACE";
        /// Whether commands in the container run with the owner's user id.
        docker_run_as_host_user: bool = false, "TERMINAL_DOCKER_RUN_AS_HOST_USER";
        /// Shared memory of a container, such as 1g. Default: what the engine gives.
        docker_shm_size: Option<ByteSize> = None, "TERMINAL_DOCKER_SHM_SIZE";
        /// Graphics processors of the host that a container gets: `all`, a number, or `device=` and their ids between
        /// commas.
        docker_gpus: Option<Gpus> = None, "TERMINAL_DOCKER_GPUS";
        /// Sizes of the directories of a container that are in memory, by path. Those that are not named have the usual
        /// one: `/tmp` 512m, `/var/tmp` 256m, `/run` 64m and, where nothing is kept, `/workspace` 10g, `/root` 1g,
        /// `/home` 1g.
        docker_tmpfs: TmpfsMap = TmpfsMap::default(), "TERMINAL_DOCKER_TMPFS";
        /// Further options of `docker run`. Only those with a known meaning are accepted. A limit among them counts
        /// before the one of another key.
        docker_extra_args: ExtraArgs = ExtraArgs::default(), "TERMINAL_DOCKER_EXTRA_ARGS";
        /// Whether a container is used again by the next hermes process.
        docker_persist_across_processes: bool = true, "TERMINAL_DOCKER_PERSIST_ACROSS_PROCESSES";
        /// Whether leftover containers of this home are removed at start.
        docker_orphan_reaper: bool = true, "TERMINAL_DOCKER_ORPHAN_REAPER";
        /// How many containers are to be ready before anybody asks for one. A new session gets one of them at once.
        docker_pool: u64 = 0, "TERMINAL_DOCKER_POOL";
        /// The engine's command, `docker`, `podman` or a path. Only used to tell which engine is meant.
        docker_binary: Option<String> = None, "HERMES_DOCKER_BINARY";
        /// The host of the ssh backend.
        ssh_host: String = String::new(), "TERMINAL_SSH_HOST";
        /// The user on that host.
        ssh_user: String = String::new(), "TERMINAL_SSH_USER";
        /// The port on that host.
        ssh_port: u16 = 22, "TERMINAL_SSH_PORT";
        /// The private key file, when ssh's own choice is not the right one.
        ssh_key: String = String::new(), "TERMINAL_SSH_KEY";
        /// The image of an Apptainer or Singularity place.
        singularity_image: String = format!("docker://{IMAGE}"), "TERMINAL_SINGULARITY_IMAGE";
        /// Where Apptainer keeps its overlays and caches. Default: the first writable scratch directory.
        scratch_dir: Option<String> = None, "TERMINAL_SCRATCH_DIR";
        /// Warn when the scratch directory holds more than this many GB.
        disk_warning_gb: f64 = 500.0, "TERMINAL_DISK_WARNING_GB";
        /// The image of a Modal sandbox.
        modal_image: String = IMAGE.into(), "TERMINAL_MODAL_IMAGE";
        /// How Modal is reached: auto, direct or managed.
        modal_mode: ModalMode = ModalMode::Auto, "TERMINAL_MODAL_MODE";
        /// The image of a Daytona sandbox.
        daytona_image: String = IMAGE.into(), "TERMINAL_DAYTONA_IMAGE";
    }
}

section! {
    /// Where the commands of chats run.
    Gateway "gateway." {
        /// Where commands of messaging sessions run, instead of terminal.backend. Default: sandbox where it works.
        terminal_backend: Option<BackendName> = None, "GATEWAY_TERMINAL_BACKEND";
        /// The image of such places, where the backend takes one. Default: the backend's own image key.
        sandbox_image: Option<String> = None, "GATEWAY_SANDBOX_IMAGE";
        /// Seconds of inactivity after which the place of a chat is removed, with its processes. Its files stay for the next
        /// one as long as the conversation does, unless `terminal.container_persistent` is false.
        sandbox_lifetime: u64 = 3600, "GATEWAY_SANDBOX_LIFETIME", at_least 1;
        /// Who shares a place in chats: session (nobody), user (all chats of one person, but for threads with others), chat, or
        /// shared (everybody).
        sandbox_scope: PlaceScope = PlaceScope::Session, "GATEWAY_SANDBOX_SCOPE";
        /// Whether all chats share the directory `shared` of the hermes home, as `/shared`. Needs places that can mount it:
        /// sandbox or docker.
        shared_home: bool = false, "GATEWAY_SHARED_HOME";
        /// People who may write to any bot, as `platform:id` or as an id alone.
        allowed_users: CommaList = CommaList::default(), "GATEWAY_ALLOWED_USERS";
        /// Whether everybody may, on platforms that name nobody.
        allow_all_users: bool = false, "GATEWAY_ALLOW_ALL_USERS";
        /// Messages that one person may send in a minute.
        messages_per_minute: u64 = 30, "GATEWAY_MESSAGES_PER_MINUTE", at_least 1;
        /// Messages that one person may send at once.
        message_burst: u64 = 10, "GATEWAY_MESSAGE_BURST", at_least 1;
        /// Directories of the place whose files an answer may send, besides the one it works in. Of this machine, what is in
        /// somebody's home or in that of hermes must be named itself.
        media_delivery_allow_dirs: Vec<String> = Vec::new(), "GATEWAY_MEDIA_DELIVERY_ALLOW_DIRS";
    }
}

section! {
    /// When a conversation in a chat is over that nobody went on with. It is looked at when the next message comes, and
    /// never while something runs in the background.
    SessionReset "session_reset." {
        /// When: none (never), daily, idle or both.
        mode: ResetMode = ResetMode::None, "SESSION_RESET_MODE";
        /// The hour of the day for daily, in the time of this machine.
        at_hour: Hour = Hour(4), "SESSION_RESET_HOUR";
        /// Minutes without a word for idle.
        idle_minutes: u64 = 1440, "SESSION_IDLE_MINUTES", at_least 1;
        /// Whether the chat is told.
        notify: bool = true, "SESSION_RESET_NOTIFY";
    }
}

section! {
    /// Discord.
    Discord "discord." {
        /// The bot's token.
        bot_token: Option<Secret> = None, "DISCORD_BOT_TOKEN";
        /// Another server for the REST API.
        api_base: Option<String> = None, "DISCORD_API_BASE";
        /// Another server for the gateway websocket.
        gateway_url: Option<String> = None, "DISCORD_GATEWAY_URL";
        /// Whether the bot must be mentioned in server channels.
        require_mention: bool = true, "DISCORD_REQUIRE_MENTION";
        /// Channels where the bot answers without a mention.
        free_response_channels: CommaList = CommaList::default(), "DISCORD_FREE_RESPONSE_CHANNELS";
        /// When set, the only channels where the bot answers.
        allowed_channels: CommaList = CommaList::default(), "DISCORD_ALLOWED_CHANNELS";
        /// Channels where the bot never answers.
        ignored_channels: CommaList = CommaList::default(), "DISCORD_IGNORED_CHANNELS";
        /// Whether a mention in a channel opens a thread for the answer.
        auto_thread: bool = true, "DISCORD_AUTO_THREAD";
        /// Channels where no thread is opened.
        no_thread_channels: CommaList = CommaList::default(), "DISCORD_NO_THREAD_CHANNELS";
        /// Whether the bot must be mentioned in threads it already takes part in.
        thread_require_mention: bool = false, "DISCORD_THREAD_REQUIRE_MENTION";
        /// What is different in single channels and their threads, by id: `require_mention`, `auto_thread` and
        /// `thread_require_mention`, each true or false.
        channels: ChannelMap = ChannelMap::default(), "DISCORD_CHANNELS";
        /// Whether words to other people, who are mentioned while the bot is not, are left to them.
        ignore_no_mention: bool = true, "DISCORD_IGNORE_NO_MENTION";
        /// Users who may talk to the bot.
        allowed_users: CommaList = CommaList::default(), "DISCORD_ALLOWED_USERS";
        /// Roles whose members may talk to the bot.
        allowed_roles: CommaList = CommaList::default(), "DISCORD_ALLOWED_ROLES";
        /// Whether everybody may talk to the bot.
        allow_all_users: bool = false, "DISCORD_ALLOW_ALL_USERS";
        /// People who look after the bot in direct messages.
        allow_admin_from: CommaList = CommaList::default(), "DISCORD_ALLOW_ADMIN_FROM";
        /// People who look after it everywhere else.
        group_allow_admin_from: CommaList = CommaList::default(), "DISCORD_GROUP_ALLOW_ADMIN_FROM";
        /// The commands that all others may use in direct messages; empty for all that are not for admins.
        user_allowed_commands: CommaList = CommaList::default(), "DISCORD_USER_ALLOWED_COMMANDS";
        /// The commands that all others may use everywhere else.
        group_user_allowed_commands: CommaList = CommaList::default(), "DISCORD_GROUP_USER_ALLOWED_COMMANDS";
        /// People who may answer questions about what others want, besides those.
        approvers: CommaList = CommaList::default(), "DISCORD_APPROVERS";
        /// What strangers get who write to the bot: pair or ignore. Default: pair, unless people are named.
        unauthorized_dm_behavior: Option<Strangers> = None, "DISCORD_UNAUTHORIZED_DM_BEHAVIOR";
        /// The id of the one server whose `allowed_roles` count in direct messages too.
        dm_role_auth_guild: String = String::new(), "DISCORD_DM_ROLE_AUTH_GUILD";
        /// Whether other bots are heard: none, mentions or all.
        allow_bots: Bots = Bots::None, "DISCORD_ALLOW_BOTS";
        /// Whether messages get reactions while they are worked on.
        reactions: bool = true, "DISCORD_REACTIONS";
        /// Whether the model is shown what others said since its own last message, when the bot is called in a channel
        /// that needs a mention, or in a thread.
        history_backfill: bool = true, "DISCORD_HISTORY_BACKFILL";
        /// How many of those messages at most; 100 is the most that is read.
        history_backfill_limit: u64 = 50, "DISCORD_HISTORY_BACKFILL_LIMIT";
        /// What the model is told besides in a channel and its threads, by id.
        channel_prompts: TextMap = TextMap::default(), "DISCORD_CHANNEL_PROMPTS";
        /// The largest attachment taken, in bytes; 0 for no limit.
        max_attachment_bytes: u64 = 33_554_432, "DISCORD_MAX_ATTACHMENT_BYTES";
        /// Which message a reply is attached to: off, first or all.
        reply_to_mode: ReplyTo = ReplyTo::First, "DISCORD_REPLY_TO_MODE";
        /// Whether the bot may notify everyone.
        allow_mention_everyone: bool = false, "DISCORD_ALLOW_MENTION_EVERYONE";
        /// Whether the bot may notify roles.
        allow_mention_roles: bool = false, "DISCORD_ALLOW_MENTION_ROLES";
        /// Whether the bot may notify users.
        allow_mention_users: bool = true, "DISCORD_ALLOW_MENTION_USERS";
        /// Whether a reply notifies the person it replies to.
        allow_mention_replied_user: bool = true, "DISCORD_ALLOW_MENTION_REPLIED_USER";
        /// The channel for messages nobody asked for.
        home_channel: String = String::new(), "DISCORD_HOME_CHANNEL";
        /// How that channel is called.
        home_channel_name: String = "Home".into(), "DISCORD_HOME_CHANNEL_NAME";
        /// The thread of that channel, if it is one.
        home_channel_thread_id: String = String::new(), "DISCORD_HOME_CHANNEL_THREAD_ID";
        /// A proxy for everything that goes to Discord: `http://host:port` or `socks5://host:port`, with
        /// `user:password@` before the host where it wants that.
        proxy: Option<Secret> = None, "DISCORD_PROXY";
        /// How slash commands are registered: safe, bulk or off.
        command_sync_policy: CommandSync = CommandSync::Safe, "DISCORD_COMMAND_SYNC_POLICY";
        /// Whether slash commands are shown only to administrators of a server, until they show them to others.
        hide_slash_commands: bool = false, "DISCORD_HIDE_SLASH_COMMANDS";
    }
}

section! {
    /// Who is asked before a dangerous command runs.
    Approvals "approvals." {
        /// Who decides about a command that a rule matched: manual, smart or off.
        mode: ApprovalMode = ApprovalMode::Manual, "HERMES_APPROVALS_MODE";
        /// Seconds a question on a terminal waits for its answer.
        timeout: u64 = 60, "HERMES_APPROVALS_TIMEOUT", at_least 1;
        /// Seconds a question in a chat waits for its answer.
        gateway_timeout: u64 = 300, "HERMES_APPROVALS_GATEWAY_TIMEOUT", at_least 1;
        /// What a scheduled job does with a question: deny or approve.
        cron_mode: Unattended = Unattended::Deny, "HERMES_APPROVALS_CRON_MODE";
        /// Commands that need not be asked about, as patterns such as `git push *`. The floor still holds.
        allow: Vec<CommandPattern> = Vec::new(), "HERMES_APPROVALS_ALLOW";
        /// Commands that are always asked about, wherever they run.
        ask: Vec<CommandPattern> = Vec::new(), "HERMES_APPROVALS_ASK";
        /// Commands that never run, wherever they would run.
        deny: Vec<CommandPattern> = Vec::new(), "HERMES_APPROVALS_DENY";
        /// Whether reloading tool servers is confirmed first.
        mcp_reload_confirm: bool = true, "HERMES_APPROVALS_MCP_RELOAD_CONFIRM";
    }
}

section! {
    /// Python scripts of the agent.
    CodeExecution "code_execution." {
        /// Where a script runs: project or strict.
        mode: CodeMode = CodeMode::Project, "HERMES_CODE_EXECUTION_MODE";
        /// Seconds a script may run.
        timeout: u64 = 300, "HERMES_CODE_EXECUTION_TIMEOUT", at_least 1;
        /// How many tools a script may call.
        max_tool_calls: u64 = 50, "HERMES_CODE_EXECUTION_MAX_TOOL_CALLS";
    }
}

section! {
    /// How much of a tool's output the model sees.
    ToolOutput "tool_output." {
        /// Bytes of a command's output.
        max_bytes: u64 = 50_000, "HERMES_TOOL_OUTPUT_MAX_BYTES", at_least 1;
        /// Lines of a file.
        max_lines: u64 = 2_000, "HERMES_TOOL_OUTPUT_MAX_LINES", at_least 1;
        /// Characters of a line.
        max_line_length: u64 = 2_000, "HERMES_TOOL_OUTPUT_MAX_LINE_LENGTH", at_least 1;
    }
}

section! {
    /// What must not leak.
    Security "security." {
        /// Whether secrets are masked in logs, tool output and stored text.
        redact_secrets: bool = true, "HERMES_REDACT_SECRETS";
    }
}

section! {
    /// The language model.
    Model "model." {
        /// The model's id.
        default: String = String::new(), "HERMES_INFERENCE_MODEL", also "model.model";
        /// Who serves it, or auto.
        provider: String = "auto".into(), "HERMES_INFERENCE_PROVIDER";
        /// The address of a server of your own.
        base_url: String = String::new(), "HERMES_MODEL_BASE_URL";
        /// The key for that server.
        api_key: Option<Secret> = None, "HERMES_MODEL_API_KEY";
        /// The model's window in tokens. Default: asked of the server.
        context_length: Option<u64> = None, "HERMES_MODEL_CONTEXT_LENGTH", at_least 1;
        /// The window to ask of Ollama, in tokens.
        ollama_num_ctx: Option<u64> = None, "HERMES_MODEL_OLLAMA_NUM_CTX", at_least 1;
        /// The longest answer in tokens.
        max_tokens: Option<u64> = None, "HERMES_MAX_TOKENS", at_least 1;
        /// HTTP headers sent with every request.
        default_headers: TextMap = TextMap::default(), "HERMES_MODEL_DEFAULT_HEADERS";
        /// How the server knows us, where it is not by key.
        auth_mode: Option<String> = None, "HERMES_MODEL_AUTH_MODE";
    }
}

section! {
    /// Keyless access to a model on Azure.
    ModelEntra "model.entra." {
        /// The scope asked for.
        scope: Option<String> = None, "HERMES_MODEL_ENTRA_SCOPE";
    }
}

section! {
    /// Which of the servers behind OpenRouter may be used.
    ProviderRouting "provider_routing." {
        /// What comes first: price, throughput or latency.
        sort: Option<String> = None, "HERMES_PROVIDER_ROUTING_SORT";
        /// The only servers that may be used.
        only: Vec<String> = Vec::new(), "HERMES_PROVIDER_ROUTING_ONLY";
        /// Servers that are never used.
        ignore: Vec<String> = Vec::new(), "HERMES_PROVIDER_ROUTING_IGNORE";
        /// The servers to be tried first, in this order.
        order: Vec<String> = Vec::new(), "HERMES_PROVIDER_ROUTING_ORDER";
        /// Whether only servers are used that know every field of a request.
        require_parameters: bool = false, "HERMES_PROVIDER_ROUTING_REQUIRE_PARAMETERS";
        /// Whether servers that keep what they are sent may be used: allow or deny.
        data_collection: Option<String> = None, "HERMES_PROVIDER_ROUTING_DATA_COLLECTION";
    }
}

section! {
    /// How the agent asks its model.
    Agent "agent." {
        /// How often a model is asked in one turn before it has to say what it has done.
        max_turns: u64 = 90, "HERMES_MAX_ITERATIONS", at_least 1;
        /// How often a model is asked again when it fails.
        api_max_retries: u64 = 3, "HERMES_API_MAX_RETRIES", at_least 1;
        /// How much a model thinks; auto leaves it to the provider.
        reasoning_effort: Effort = Effort::Auto, "HERMES_REASONING_EFFORT";
        /// How pictures come to a model: auto shows them unless its server does not take them, native always shows them, text only
        /// says where the files are.
        image_input_mode: ImageInput = ImageInput::Auto, "HERMES_IMAGE_INPUT_MODE";
        /// Seconds after which a chat is told again how long it has been worked, also when there is nothing new; 0 for never.
        gateway_notify_interval: u64 = 180, "HERMES_AGENT_NOTIFY_INTERVAL";
    }
}

section! {
    /// What is shown of the agent's work.
    Display "display." {
        /// Whether the thoughts of a model are shown.
        show_reasoning: bool = false, "HERMES_DISPLAY_SHOW_REASONING";
        /// What is done about a message in a chat where something is under way: queue, interrupt or steer.
        busy_input_mode: BusyInput = BusyInput::Queue, "HERMES_GATEWAY_BUSY_INPUT_MODE";
        /// What a chat is told about the tools of a turn that takes long, where messages can be changed: off, new (the tool)
        /// or all (and what it is used for).
        tool_progress: ToolProgress = ToolProgress::All, "HERMES_DISPLAY_TOOL_PROGRESS";
    }
}

section! {
    /// What is shown on Discord, instead of what is shown elsewhere.
    DisplayDiscord "display.platforms.discord." {
        /// Whether answers appear on Discord while they are written. Default: as streaming.enabled says.
        streaming: Option<bool> = None, "HERMES_DISPLAY_DISCORD_STREAMING";
        /// What is told about tools on Discord. Default: as display.tool_progress says.
        tool_progress: Option<ToolProgress> = None, "HERMES_DISPLAY_DISCORD_TOOL_PROGRESS";
    }
}

section! {
    /// Answers in chats while they are written.
    Streaming "streaming." {
        /// Whether answers appear while they are written, where messages can be changed.
        enabled: bool = false, "HERMES_STREAMING_ENABLED";
        /// Seconds between two changes of a message; never less than the platform likes.
        edit_interval: f64 = 0.8, "HERMES_STREAMING_EDIT_INTERVAL";
    }
}

section! {
    /// Conversations that are kept.
    Sessions "sessions." {
        /// Whether the gateway removes, once a day, conversations that nobody went on with for long.
        auto_prune: bool = false, "HERMES_SESSIONS_AUTO_PRUNE";
        /// After how many days.
        retention_days: u64 = 90, "HERMES_SESSIONS_RETENTION_DAYS", at_least 1;
    }
}

section! {
    /// The log file in the home.
    Logging "logging." {
        /// How much is written: error, warn, info, debug or trace.
        level: Level = Level::Info, "HERMES_LOG_LEVEL";
        /// The size in MB at which the log file is turned over.
        max_size_mb: u64 = 5, "HERMES_LOG_MAX_SIZE_MB", at_least 1;
        /// How many older log files are kept.
        backup_count: u64 = 3, "HERMES_LOG_BACKUP_COUNT";
    }
}

section! {
    /// What the agent can be taught.
    Skills "skills." {
        /// Directories with further skills; a relative one is below the hermes home. Containers see them, read-only, as
        /// `/root/.hermes/external_skills/0` and so on.
        external_dirs: Vec<String> = Vec::new(), "HERMES_SKILLS_EXTERNAL_DIRS";
    }
}

section! {
    /// Keys without a section.
    General "" {
        /// Commands that are never asked about again, as patterns; entries the gate cannot read have no effect.
        command_allowlist: Vec<String> = Vec::new(), "HERMES_COMMAND_ALLOWLIST";
        /// The most characters one read of a file gives.
        file_read_max_chars: u64 = 100_000, "HERMES_FILE_READ_MAX_CHARS", at_least 1;
        /// Servers of your own, by the name that `model.provider` calls them.
        providers: Servers = Servers::default(), "HERMES_PROVIDERS";
        /// The models that are asked when the first one fails, in their order.
        fallback_providers: Fallbacks = Fallbacks::default(), "HERMES_FALLBACK_PROVIDERS";
        /// What strangers get who write to a bot: pair or ignore. Default: pair, unless people are named.
        unauthorized_dm_behavior: Option<Strangers> = None, "HERMES_UNAUTHORIZED_DM_BEHAVIOR";
        /// Whether everybody in a group has a session of their own.
        group_sessions_per_user: bool = true, "HERMES_GROUP_SESSIONS_PER_USER";
        /// Whether everybody in a thread has a session of their own.
        thread_sessions_per_user: bool = false, "HERMES_THREAD_SESSIONS_PER_USER";
    }
}

macro_rules! config {
    ($($field:ident: $section:ident),+ $(,)?) => {
        /// The whole configuration, read once and handed down.
        #[derive(Debug, Clone, PartialEq)]
        pub struct Config {
            $(#[doc = concat!("The keys of [`", stringify!($section), "`].")] pub $field: $section,)+
        }

        impl Config {
            pub(crate) fn read(layers: &mut LayerReader<'_>) -> Self {
                Self { $($field: $section::read(layers)),+ }
            }
        }

        const SECTIONS: &[&[ConfigKey]] = &[$($section::KEYS),+];
    };
}

config! {
    terminal: Terminal,
    gateway: Gateway,
    session_reset: SessionReset,
    discord: Discord,
    approvals: Approvals,
    code_execution: CodeExecution,
    tool_output: ToolOutput,
    security: Security,
    model: Model,
    model_entra: ModelEntra,
    provider_routing: ProviderRouting,
    agent: Agent,
    display: Display,
    display_discord: DisplayDiscord,
    streaming: Streaming,
    sessions: Sessions,
    logging: Logging,
    skills: Skills,
    general: General,
}

/// Every key, in the order of the reference page.
pub fn all() -> impl Iterator<Item = &'static ConfigKey> {
    SECTIONS.iter().copied().flatten()
}

/// The key with this path, older path or variable.
pub fn find(name: &str) -> Option<&'static ConfigKey> {
    all().find(|key| key.path == name || key.aliases.contains(&name) || key.variable == name)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::unused::UNUSED;
    use crate::yaml::Node;

    #[test]
    fn paths_and_variables_are_unique_and_every_key_is_documented() {
        let mut seen = HashSet::new();
        for key in all() {
            assert!(seen.insert(key.path), "{} is defined twice", key.path);
            assert!(seen.insert(key.variable), "{} is used twice", key.variable);
            assert!(key.doc.trim().ends_with('.'), "{} has no sentence", key.path);
            assert!(!UNUSED.iter().any(|(unused, _)| *unused == key.path), "{} is used", key.path);
        }
    }

    #[test]
    fn every_default_passes_its_own_check() {
        for key in all() {
            let default = (key.default)();
            if default.is_null() || default.as_str() == Some("") || key.path == "discord.allowed_users" {
                continue;
            }
            let text = default.as_str().map_or_else(|| default.to_string(), str::to_owned);
            let mut notes = Vec::new();
            assert_eq!((key.check)(&Node::from_text(&text), &mut notes), Ok(default), "{}", key.path);
            assert_eq!(notes, [], "{}", key.path);
        }
    }
}
