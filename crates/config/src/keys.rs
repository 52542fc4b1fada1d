//! All keys of the configuration.
//!
//! Defaults are those of the Python program, so a file written for it keeps its meaning. `config
//! explain` and the reference page print the doc comment of a key.

use hermes_agent::CodeMode;
use hermes_exec::backend::docker::run_args::value::Gpus;
use hermes_gateway::discord::{CommandSync, ReplyMode};
use hermes_gateway::{BotPolicy, StrangerPolicy, ToolProgress};
use hermes_model::{Api, Effort, ImageMode};
use hermes_policy::text_pattern::TextPattern;
use hermes_policy::user_rule::CommandPattern;
use hermes_policy::{ApprovalMode, Unattended};
use hermes_session::BusyPolicy;
use hermes_types::{BackendName, EnvName, Guard, Network, Secret, Volume};
use tracing::level_filters::LevelFilter;

use super::define::{ConfigKey, section};
use super::layers::LayerReader;
use super::setting::{
    ByteSize, ChannelMap, CommaList, EnvMap, ExtraArgs, Fallbacks, Hour, Passthrough, ServerList, Servers,
    TextMap, TmpfsMap, choice,
};

/// The default image of containers.
const IMAGE: &str = "nikolaik/python-nodejs:python3.11-nodejs20";

/// The version of the file layout that this program reads and writes.
pub const CONFIG_VERSION: u64 = 33;

choice!(for CodeMode { Self::Project => "project", Self::Strict => "strict" });
choice!(for Unattended { Self::Deny => "deny", Self::Allow => "approve" });
choice!(for ReplyMode { Self::Off => "off" | "false" | "no", Self::First => "first", Self::All => "all" });
choice!(for BotPolicy {
    Self::None => "none" | "false" | "no" | "off",
    Self::Mentions => "mentions",
    Self::All => "all" | "true" | "yes" | "on",
});
choice!(for StrangerPolicy { Self::Pair => "pair", Self::Ignore => "ignore" });
choice!(for BusyPolicy { Self::Queue => "queue", Self::Interrupt => "interrupt", Self::Steer => "steer" });
choice!(for ToolProgress {
    Self::Off => "off" | "false" | "no",
    Self::Names => "new",
    Self::All => "all" | "verbose" | "true" | "yes" | "on",
});
choice!(for CommandSync { Self::Safe => "safe", Self::Bulk => "bulk", Self::Off => "off" | "false" | "no" });
choice!(for Option<Effort> {
    None => "auto" | "",
    Some(Effort::None) => "none" | "false" | "off" | "no" | "disabled",
    Some(Effort::Minimal) => "minimal",
    Some(Effort::Low) => "low",
    Some(Effort::Medium) => "medium",
    Some(Effort::High) => "high",
    Some(Effort::Xhigh) => "xhigh",
    Some(Effort::Max) => "max",
    Some(Effort::Ultra) => "ultra",
});
choice!(for Api {
    Self::ChatCompletions => "chat_completions" | "openai_chat",
    Self::AnthropicMessages => "anthropic_messages",
    Self::Responses => "codex_responses" | "responses",
    Self::OllamaChat => "ollama_chat",
});
choice!(for ImageMode { Self::Auto => "auto", Self::Native => "native", Self::Text => "text" });
choice!(for LevelFilter {
    Self::ERROR => "error",
    Self::WARN => "warn" | "warning",
    Self::INFO => "info",
    Self::DEBUG => "debug",
    Self::TRACE => "trace",
});

choice! {
    /// The HOME of commands that run on this machine.
    HomeMode {
        Auto = "auto",
        Real = "real",
        Profile = "profile",
    }
}

choice! {
    /// Which chat sessions share an environment.
    PlaceScope {
        /// Each session has its own.
        Session = "session",
        /// All sessions of one user share one.
        User = "user",
        /// All sessions of one chat share one.
        Chat = "chat",
        /// All sessions share one.
        Shared = "shared",
    }
}

choice! {
    /// When an inactive chat session is reset.
    ResetMode {
        None = "none" | "off" | "false" | "no",
        Daily = "daily",
        Idle = "idle",
        Both = "both",
    }
}

section! {
    /// Where commands run and what they can use.
    Terminal "terminal." {
        /// The backend that runs commands: local, sandbox, docker, ssh, singularity, modal, daytona
        /// or kubernetes.
        backend: BackendName = BackendName::Local, "TERMINAL_ENV", also "terminal.env_type";
        /// The directory a session starts in. `.` is the directory hermes was started in. Inside a
        /// sandbox or container, `.` and directories of your home mean `/workspace`.
        cwd: String = ".".into(), "TERMINAL_CWD";
        /// Seconds a command may run before it is stopped.
        timeout: u64 = 180, "TERMINAL_TIMEOUT", at_least 1;
        /// The largest timeout, in seconds, that a tool call may request for a foreground command.
        max_foreground_timeout: u64 = 600, "TERMINAL_MAX_FOREGROUND_TIMEOUT", at_least 1;
        /// Seconds an environment may stay idle before it is removed. It is never removed while a
        /// command runs.
        lifetime_seconds: u64 = 300, "TERMINAL_LIFETIME_SECONDS", at_least 1;
        /// How many environments may exist at once. At the limit, a new one waits until another
        /// ends; the one that has been idle longest is ended first.
        max_places: u64 = 256, "TERMINAL_MAX_PLACES", at_least 1;
        /// How many environments one person in chats may have at once. At the limit, the one that
        /// has been idle longest is ended; if all are busy, a new one is refused. 0 is no limit.
        max_places_per_person: u64 = 32, "TERMINAL_MAX_PLACES_PER_PERSON";
        /// Seconds after which an environment that no hermes has used is ended, even if processes
        /// run there. 0 is no limit.
        max_idle_seconds: u64 = 86_400, "TERMINAL_MAX_IDLE_SECONDS";
        /// Seconds after which an environment is ended, even if it is in use. 0 is no limit.
        max_age_seconds: u64 = 604_800, "TERMINAL_MAX_AGE_SECONDS";
        /// The network access of an environment: full, none or proxy (public hosts only, for
        /// programs that honor HTTP_PROXY). Default: proxy for sandbox, full for the others. local
        /// supports only full.
        network: Option<Network> = None, "TERMINAL_NETWORK";
        /// What the kernel keeps from commands without approval on this machine. `protect` hides
        /// credentials, control sockets and the hermes home, and keeps start-up files from changes;
        /// `project` also makes everything read-only except the project, temporary and cache
        /// directories; `off` leaves everything to the gate.
        guard: Guard = Guard::Protect, "TERMINAL_GUARD";
        /// The HOME of commands that run on this machine. `real` is your own; `profile` is the
        /// directory `home` in the hermes home, if it exists, with your own in `HERMES_REAL_HOME`;
        /// `auto` is `profile` when hermes itself runs in a container, else `real`.
        home_mode: HomeMode = HomeMode::Auto, "TERMINAL_HOME_MODE";
        /// Variables of the hermes process that every command can read, in addition to a small base
        /// set. Keys of model providers, tokens of chat platforms and similar secrets are refused
        /// here; use `hermes exec --env` to pass one to a single command.
        env_passthrough: Passthrough = Passthrough::default(), "TERMINAL_ENV_PASSTHROUGH";
        /// Files below the hermes home that are mounted read-only into containers, below
        /// `/root/.hermes`. Skills also get the files they declare in `credentials/`.
        credential_files: Vec<String> = Vec::new(), "TERMINAL_CREDENTIAL_FILES";
        /// Files that a local session sources at its start, instead of the usual ones. Variables
        /// they export stay set, except names that `env_passthrough` refuses.
        shell_init_files: Vec<String> = Vec::new(), "TERMINAL_SHELL_INIT_FILES";
        /// Whether a local session sources `~/.profile`, `~/.bash_profile` and `~/.bashrc` at its
        /// start.
        auto_source_bashrc: bool = true, "TERMINAL_AUTO_SOURCE_BASHRC";
        /// The directory for persistent files of environments. Default: `sandboxes` in the hermes
        /// home.
        sandbox_dir: Option<String> = None, "TERMINAL_SANDBOX_DIR";
        /// Processors an environment may use; 0 for no limit.
        container_cpu: f64 = 1.0, "TERMINAL_CONTAINER_CPU";
        /// Memory of an environment in MB; 0 for no limit.
        container_memory: u64 = 5120, "TERMINAL_CONTAINER_MEMORY";
        /// Disk space of an environment in MB; 0 for no limit.
        container_disk: u64 = 51200, "TERMINAL_CONTAINER_DISK";
        /// Processes and threads of an environment; 0 for no limit.
        container_pids: u64 = 256, "TERMINAL_CONTAINER_PIDS";
        /// Whether the home and workspace of an environment are kept when it ends.
        container_persistent: bool = true, "TERMINAL_CONTAINER_PERSISTENT";
        /// The image of Docker and Podman containers.
        docker_image: String = IMAGE.into(), "TERMINAL_DOCKER_IMAGE";
        /// Seconds that pulling an image may take.
        docker_pull_timeout: u64 = 1800, "TERMINAL_DOCKER_PULL_TIMEOUT", at_least 1;
        /// Names of variables to pass to commands in the container. Values come from the process
        /// environment, then from `.env`. Every command in the container can read them.
        docker_forward_env: Vec<EnvName> = Vec::new(), "TERMINAL_DOCKER_FORWARD_ENV";
        /// Variables with literal values for commands in the container.
        docker_env: EnvMap = EnvMap::default(), "TERMINAL_DOCKER_ENV";
        /// Mounts, each `source:target[:options]`. A writable mount lets commands change that
        /// directory of the host.
        docker_volumes: Vec<Volume> = Vec::new(), "TERMINAL_DOCKER_VOLUMES";
        /// Whether containers get only the mounts in `docker_volumes`, without the skills, caches
        /// and credential files of the hermes home.
        strict_mounts: bool = false, "TERMINAL_STRICT_MOUNTS";
        /// Whether containers have a network. `false` has the same effect as `network: none`.
        docker_network: bool = true, "TERMINAL_DOCKER_NETWORK";
        /// Whether the start directory is mounted at `/workspace`.
        docker_mount_cwd_to_workspace: bool = false, "TERMINAL_DOCKER_MOUNT_CWD_TO_WORKSPACE";
        /// Whether commands in the container run with your user id.
        docker_run_as_host_user: bool = false, "TERMINAL_DOCKER_RUN_AS_HOST_USER";
        /// Shared memory of a container, such as 1g. Default: the default of the engine.
        docker_shm_size: Option<ByteSize> = None, "TERMINAL_DOCKER_SHM_SIZE";
        /// GPUs of the host that a container can use: `all`, a number, or `device=` followed by ids
        /// separated by commas.
        docker_gpus: Option<Gpus> = None, "TERMINAL_DOCKER_GPUS";
        /// Sizes of the in-memory directories of a container, by path. Defaults: `/tmp` 512m,
        /// `/var/tmp` 256m, `/run` 64m and, where nothing is persistent, `/workspace` 10g, `/root`
        /// 1g, `/home` 1g.
        docker_tmpfs: TmpfsMap = TmpfsMap::default(), "TERMINAL_DOCKER_TMPFS";
        /// Further options of `docker run`. Only options with a known meaning are accepted. A limit
        /// given here takes precedence over the key for that limit.
        docker_extra_args: ExtraArgs = ExtraArgs::default(), "TERMINAL_DOCKER_EXTRA_ARGS";
        /// Whether the next hermes process reuses a container.
        docker_persist_across_processes: bool = true, "TERMINAL_DOCKER_PERSIST_ACROSS_PROCESSES";
        /// Whether leftover containers of this home are removed at start.
        docker_orphan_reaper: bool = true, "TERMINAL_DOCKER_ORPHAN_REAPER";
        /// How many containers to start in advance; a new session uses one at once.
        docker_pool: u64 = 0, "TERMINAL_DOCKER_POOL";
        /// The command of the engine: `docker`, `podman` or a path. Used only to choose the engine.
        docker_binary: Option<String> = None, "HERMES_DOCKER_BINARY";
        /// The image of Apptainer and Singularity containers.
        singularity_image: String = format!("docker://{IMAGE}"), "TERMINAL_SINGULARITY_IMAGE";
        /// The image of Modal sandboxes.
        modal_image: String = IMAGE.into(), "TERMINAL_MODAL_IMAGE";
        /// The image of Daytona sandboxes.
        daytona_image: String = IMAGE.into(), "TERMINAL_DAYTONA_IMAGE";
    }
}

section! {
    /// Chat sessions: where their commands run and who may use them.
    Gateway "gateway." {
        /// The backend that runs commands of chats, instead of terminal.backend. Default:
        /// terminal.backend, or sandbox where that is local.
        terminal_backend: Option<BackendName> = None, "GATEWAY_TERMINAL_BACKEND";
        /// The image of environments of chats, for backends that use images. Default: the image key
        /// of the backend.
        sandbox_image: Option<String> = None, "GATEWAY_SANDBOX_IMAGE";
        /// Seconds of inactivity after which the environment of a chat is removed, with its
        /// processes. Its files are kept as long as the conversation, unless
        /// `terminal.container_persistent` is false.
        sandbox_lifetime: u64 = 3600, "GATEWAY_SANDBOX_LIFETIME", at_least 1;
        /// Which chat sessions share an environment: session (none), user (all sessions of one
        /// user, except threads with others), chat (all sessions of one chat) or shared (all
        /// sessions).
        sandbox_scope: PlaceScope = PlaceScope::Session, "GATEWAY_SANDBOX_SCOPE";
        /// Whether all chats share the directory `shared` of the hermes home, mounted at `/shared`.
        /// Requires the sandbox or docker backend.
        shared_home: bool = false, "GATEWAY_SHARED_HOME";
        /// Users who may write to every bot, as `platform:id` or an id alone.
        allowed_users: CommaList = CommaList::default(), "GATEWAY_ALLOWED_USERS";
        /// Whether all users may write to a bot, on platforms without a list of users.
        allow_all_users: bool = false, "GATEWAY_ALLOW_ALL_USERS";
        /// Messages that one user may send per minute.
        messages_per_minute: u64 = 30, "GATEWAY_MESSAGES_PER_MINUTE", at_least 1;
        /// Messages that one user may send at once.
        message_burst: u64 = 10, "GATEWAY_MESSAGE_BURST", at_least 1;
        /// Directories of the environment whose files an answer may send, in addition to the
        /// working directory. On the local backend, directories in a home directory or in the
        /// hermes home must be listed themselves.
        media_delivery_allow_dirs: Vec<String> = Vec::new(), "GATEWAY_MEDIA_DELIVERY_ALLOW_DIRS";
    }
}

section! {
    /// When an inactive chat session is reset. Checked when the next message arrives, never while a
    /// background process runs.
    SessionReset "session_reset." {
        /// When to reset: none (never), daily, idle or both.
        mode: ResetMode = ResetMode::None, "SESSION_RESET_MODE";
        /// The hour of the daily reset, in local time.
        at_hour: Hour = Hour(4), "SESSION_RESET_HOUR";
        /// Minutes of inactivity before an idle reset.
        idle_minutes: u64 = 1440, "SESSION_IDLE_MINUTES", at_least 1;
        /// Whether the chat is notified of a reset.
        notify: bool = true, "SESSION_RESET_NOTIFY";
    }
}

section! {
    /// The Discord bot.
    Discord "discord." {
        /// The bot token.
        bot_token: Option<Secret> = None, "DISCORD_BOT_TOKEN";
        /// The base URL of the REST API. Default: Discord's own.
        api_base: Option<String> = None, "DISCORD_API_BASE";
        /// The URL of the gateway websocket. Default: Discord's own.
        gateway_url: Option<String> = None, "DISCORD_GATEWAY_URL";
        /// Whether the bot answers in server channels only when it is mentioned.
        require_mention: bool = true, "DISCORD_REQUIRE_MENTION";
        /// Channels where the bot answers without a mention.
        free_response_channels: CommaList = CommaList::default(), "DISCORD_FREE_RESPONSE_CHANNELS";
        /// When set, the bot answers only in these channels.
        allowed_channels: CommaList = CommaList::default(), "DISCORD_ALLOWED_CHANNELS";
        /// Channels where the bot never answers.
        ignored_channels: CommaList = CommaList::default(), "DISCORD_IGNORED_CHANNELS";
        /// Whether a mention in a channel opens a thread for the answer.
        auto_thread: bool = true, "DISCORD_AUTO_THREAD";
        /// Channels where no thread is opened.
        no_thread_channels: CommaList = CommaList::default(), "DISCORD_NO_THREAD_CHANNELS";
        /// Whether the bot must be mentioned in threads it already takes part in.
        thread_require_mention: bool = false, "DISCORD_THREAD_REQUIRE_MENTION";
        /// Overrides for single channels and their threads, by id: `require_mention`, `auto_thread`
        /// and `thread_require_mention`, each true or false.
        channels: ChannelMap = ChannelMap::default(), "DISCORD_CHANNELS";
        /// Whether the bot ignores messages that mention other users but not the bot.
        ignore_no_mention: bool = true, "DISCORD_IGNORE_NO_MENTION";
        /// Users who may use the bot.
        allowed_users: CommaList = CommaList::default(), "DISCORD_ALLOWED_USERS";
        /// Roles whose members may use the bot.
        allowed_roles: CommaList = CommaList::default(), "DISCORD_ALLOWED_ROLES";
        /// Whether all users may use the bot.
        allow_all_users: bool = false, "DISCORD_ALLOW_ALL_USERS";
        /// Admins of the bot in direct messages.
        allow_admin_from: CommaList = CommaList::default(), "DISCORD_ALLOW_ADMIN_FROM";
        /// Admins of the bot in servers.
        group_allow_admin_from: CommaList = CommaList::default(), "DISCORD_GROUP_ALLOW_ADMIN_FROM";
        /// The commands that other users may use in direct messages; empty for all that are not for
        /// admins.
        user_allowed_commands: CommaList = CommaList::default(), "DISCORD_USER_ALLOWED_COMMANDS";
        /// The commands that other users may use in servers; empty for all that are not for admins.
        group_user_allowed_commands: CommaList = CommaList::default(), "DISCORD_GROUP_USER_ALLOWED_COMMANDS";
        /// Users who may approve commands of others, in addition to admins.
        approvers: CommaList = CommaList::default(), "DISCORD_APPROVERS";
        /// The answer to unknown users who write to the bot: pair (a pairing code) or ignore
        /// (none). Default: pair, unless allowed users are listed.
        unauthorized_dm_behavior: Option<StrangerPolicy> = None, "DISCORD_UNAUTHORIZED_DM_BEHAVIOR";
        /// The id of the one server whose `allowed_roles` also count in direct messages.
        dm_role_auth_guild: String = String::new(), "DISCORD_DM_ROLE_AUTH_GUILD";
        /// Whether the bot answers other bots: none, mentions (only when mentioned) or all.
        allow_bots: BotPolicy = BotPolicy::None, "DISCORD_ALLOW_BOTS";
        /// Whether the bot adds reactions to messages it works on.
        reactions: bool = true, "DISCORD_REACTIONS";
        /// Whether the model also gets the messages since its own last one when the bot is called
        /// in a thread, or in a channel that requires a mention.
        history_backfill: bool = true, "DISCORD_HISTORY_BACKFILL";
        /// How many of those messages at most, up to 100.
        history_backfill_limit: u64 = 50, "DISCORD_HISTORY_BACKFILL_LIMIT";
        /// Additional instructions for the model in a channel and its threads, by channel id.
        channel_prompts: TextMap = TextMap::default(), "DISCORD_CHANNEL_PROMPTS";
        /// The largest accepted attachment in bytes; 0 for no limit.
        max_attachment_bytes: u64 = 33_554_432, "DISCORD_MAX_ATTACHMENT_BYTES";
        /// Which parts of an answer are sent as a reply to the message: off (none), first or all.
        reply_to_mode: ReplyMode = ReplyMode::First, "DISCORD_REPLY_TO_MODE";
        /// Whether the bot may notify everyone.
        allow_mention_everyone: bool = false, "DISCORD_ALLOW_MENTION_EVERYONE";
        /// Whether the bot may notify roles.
        allow_mention_roles: bool = false, "DISCORD_ALLOW_MENTION_ROLES";
        /// Whether the bot may notify users.
        allow_mention_users: bool = true, "DISCORD_ALLOW_MENTION_USERS";
        /// Whether a reply notifies the author of the message.
        allow_mention_replied_user: bool = true, "DISCORD_ALLOW_MENTION_REPLIED_USER";
        /// The channel for messages that `hermes send` sends without a target.
        home_channel: String = String::new(), "DISCORD_HOME_CHANNEL";
        /// The display name of the home channel.
        home_channel_name: String = "Home".into(), "DISCORD_HOME_CHANNEL_NAME";
        /// The id of a thread in the home channel.
        home_channel_thread_id: String = String::new(), "DISCORD_HOME_CHANNEL_THREAD_ID";
        /// The proxy for all Discord connections: `http://host:port` or `socks5://host:port`, with
        /// `user:password@` before the host if it requires a login.
        proxy: Option<Secret> = None, "DISCORD_PROXY";
        /// How slash commands are registered: safe (when they changed), bulk (at every start) or
        /// off (never).
        command_sync_policy: CommandSync = CommandSync::Safe, "DISCORD_COMMAND_SYNC_POLICY";
        /// Whether slash commands are visible only to administrators of a server by default.
        hide_slash_commands: bool = false, "DISCORD_HIDE_SLASH_COMMANDS";
    }
}

section! {
    /// Approval of dangerous commands.
    Approvals "approvals." {
        /// Who decides about a command that matches a rule: manual (a person), smart (a model, see
        /// `auxiliary.approval`, may refuse it, or allow it if it harms only the working directory
        /// or its own processes; otherwise a person) or off (no question is asked; the hard floor
        /// and your own rules still hold).
        mode: ApprovalMode = ApprovalMode::Manual, "HERMES_APPROVALS_MODE";
        /// Seconds a question on a terminal waits for an answer.
        timeout: u64 = 60, "HERMES_APPROVALS_TIMEOUT", at_least 1;
        /// Seconds a question in a chat waits for an answer.
        gateway_timeout: u64 = 300, "HERMES_APPROVALS_GATEWAY_TIMEOUT", at_least 1;
        /// The answer to questions of a scheduled job: deny or approve.
        cron_mode: Unattended = Unattended::Deny, "HERMES_APPROVALS_CRON_MODE";
        /// Patterns of commands that run without a question, such as `git push *`. The hard floor
        /// still holds.
        allow: Vec<CommandPattern> = Vec::new(), "HERMES_APPROVALS_ALLOW";
        /// Patterns of commands that always need approval, on every backend.
        ask: Vec<CommandPattern> = Vec::new(), "HERMES_APPROVALS_ASK";
        /// Patterns of commands that never run, on any backend. A pattern is compared with the whole
        /// text and with each command in it, in any case: `*` stands for any text, `?` for one
        /// character, `[ab]` for one of several. If it is also a command pattern, as in
        /// `git push --force *`, it denies every spelling of that command too.
        deny: Vec<TextPattern> = Vec::new(), "HERMES_APPROVALS_DENY";
    }
}

section! {
    /// The model that reviews commands if `approvals.mode` is smart. Without settings it is the
    /// main model.
    AuxiliaryApproval "auxiliary.approval." {
        /// The provider of the model, as in `model.provider`; auto for that of the main model.
        provider: String = "auto".into(), "AUXILIARY_APPROVAL_PROVIDER";
        /// The model. Default: the main model.
        model: String = String::new(), "AUXILIARY_APPROVAL_MODEL";
        /// The base URL of your own server.
        base_url: String = String::new(), "AUXILIARY_APPROVAL_BASE_URL";
        /// The API key for that server or provider.
        api_key: Option<Secret> = None, "AUXILIARY_APPROVAL_API_KEY";
        /// Seconds the model may take; a person is asked then.
        timeout: u64 = 30, "AUXILIARY_APPROVAL_TIMEOUT", at_least 1;
    }
}

section! {
    /// Python scripts that the agent runs.
    CodeExecution "code_execution." {
        /// Where a script runs: project (in the session's directory, with the interpreter of the
        /// project) or strict (in an empty directory).
        mode: CodeMode = CodeMode::Project, "HERMES_CODE_EXECUTION_MODE";
        /// Seconds a script may run.
        timeout: u64 = 300, "HERMES_CODE_EXECUTION_TIMEOUT", at_least 1;
        /// How many tool calls a script may make.
        max_tool_calls: u64 = 50, "HERMES_CODE_EXECUTION_MAX_TOOL_CALLS";
    }
}

section! {
    /// How much output of a tool the model gets.
    ToolOutput "tool_output." {
        /// Bytes of the output of a command.
        max_bytes: u64 = 50_000, "HERMES_TOOL_OUTPUT_MAX_BYTES", at_least 1;
        /// Lines of a file.
        max_lines: u64 = 2_000, "HERMES_TOOL_OUTPUT_MAX_LINES", at_least 1;
        /// Characters of a line.
        max_line_length: u64 = 2_000, "HERMES_TOOL_OUTPUT_MAX_LINE_LENGTH", at_least 1;
    }
}

section! {
    /// Protection of secrets.
    Security "security." {
        /// Whether secrets are masked in logs, tool output and stored text.
        redact_secrets: bool = true, "HERMES_REDACT_SECRETS";
    }
}

section! {
    /// The language model.
    Model "model." {
        /// The id of the model.
        default: String = String::new(), "HERMES_INFERENCE_MODEL", also "model.model";
        /// The provider that serves it, or auto.
        provider: String = "auto".into(), "HERMES_INFERENCE_PROVIDER";
        /// The base URL of your own server.
        base_url: String = String::new(), "HERMES_MODEL_BASE_URL";
        /// The API key for that server.
        api_key: Option<Secret> = None, "HERMES_MODEL_API_KEY";
        /// The variable that holds the API key for that server.
        key_env: Option<String> = None, "HERMES_MODEL_KEY_ENV";
        /// The protocol of that server: chat_completions, anthropic_messages, codex_responses or
        /// ollama_chat. Default: detected.
        api_mode: Option<Api> = None, "HERMES_MODEL_API_MODE";
        /// The context window in tokens. Default, or 0: the server's answer.
        context_length: Option<u64> = None, "HERMES_MODEL_CONTEXT_LENGTH";
        /// The context window to request from Ollama, in tokens. Default, or 0:
        /// `model.context_length`, else that of the Modelfile, else all that the model supports.
        ollama_num_ctx: Option<u64> = None, "HERMES_MODEL_OLLAMA_NUM_CTX";
        /// The longest answer in tokens. Default, or 0: the provider's limit.
        max_tokens: Option<u64> = None, "HERMES_MAX_TOKENS";
        /// HTTP headers sent with every request.
        default_headers: TextMap = TextMap::default(), "HERMES_MODEL_DEFAULT_HEADERS";
    }
}

section! {
    /// Which providers OpenRouter may use.
    ProviderRouting "provider_routing." {
        /// How providers are sorted: price, throughput or latency.
        sort: Option<String> = None, "HERMES_PROVIDER_ROUTING_SORT";
        /// The only providers that may be used.
        only: Vec<String> = Vec::new(), "HERMES_PROVIDER_ROUTING_ONLY";
        /// Providers that are never used.
        ignore: Vec<String> = Vec::new(), "HERMES_PROVIDER_ROUTING_IGNORE";
        /// The providers to try first, in this order.
        order: Vec<String> = Vec::new(), "HERMES_PROVIDER_ROUTING_ORDER";
        /// Whether only providers that support every field of a request are used.
        require_parameters: bool = false, "HERMES_PROVIDER_ROUTING_REQUIRE_PARAMETERS";
        /// Whether providers that store requests may be used: allow or deny.
        data_collection: Option<String> = None, "HERMES_PROVIDER_ROUTING_DATA_COLLECTION";
    }
}

section! {
    /// The turn loop of the agent.
    Agent "agent." {
        /// Model requests per turn before the model must finish with an answer. Requests that only
        /// run a script are free, up to the same number.
        max_turns: u64 = 90, "HERMES_MAX_ITERATIONS", at_least 1;
        /// How often a failed model request is retried.
        api_max_retries: u64 = 3, "HERMES_API_MAX_RETRIES", at_least 1;
        /// How much a model reasons; auto leaves it to the provider.
        reasoning_effort: Option<Effort> = None, "HERMES_REASONING_EFFORT";
        /// How images reach a model: auto sends them unless the server rejects images, native
        /// always sends them, text sends only the paths of the files.
        image_input_mode: ImageMode = ImageMode::Auto, "HERMES_IMAGE_INPUT_MODE";
        /// Seconds after which a turn in a chat ends if the model sends nothing and no tool runs;
        /// 0 for no limit.
        gateway_timeout: u64 = 1800, "HERMES_AGENT_TIMEOUT";
        /// Seconds between progress messages in a chat while a turn runs; 0 for none.
        gateway_notify_interval: u64 = 180, "HERMES_AGENT_NOTIFY_INTERVAL";
    }
}

section! {
    /// Models that repeat the same calls without progress. Everything is counted per turn.
    LoopGuardrails "tool_loop_guardrails." {
        /// Whether the model is warned.
        warnings_enabled: bool = true, "HERMES_LOOP_WARNINGS_ENABLED";
        /// Whether the turn is ended.
        hard_stop_enabled: bool = false, "HERMES_LOOP_HARD_STOP_ENABLED";
    }
}

section! {
    /// When a model that repeats calls is warned.
    LoopWarnAfter "tool_loop_guardrails.warn_after." {
        /// Failures of the same call.
        exact_failure: u64 = 2, "HERMES_LOOP_WARN_EXACT_FAILURE", at_least 1;
        /// Failures of the same tool without a success between them.
        same_tool_failure: u64 = 3, "HERMES_LOOP_WARN_SAME_TOOL_FAILURE", at_least 1;
        /// Equal results of the same call.
        idempotent_no_progress: u64 = 2, "HERMES_LOOP_WARN_NO_PROGRESS", at_least 1;
    }
}

section! {
    /// When the turn of a model that repeats calls is ended, if `hard_stop_enabled` is true.
    LoopStopAfter "tool_loop_guardrails.hard_stop_after." {
        /// Failures of the same call.
        exact_failure: u64 = 5, "HERMES_LOOP_STOP_EXACT_FAILURE", at_least 1;
        /// Failures of the same tool without a success between them.
        same_tool_failure: u64 = 8, "HERMES_LOOP_STOP_SAME_TOOL_FAILURE", at_least 1;
        /// Equal results of the same call that only reads.
        idempotent_no_progress: u64 = 5, "HERMES_LOOP_STOP_NO_PROGRESS", at_least 1;
    }
}

section! {
    /// How turns are displayed.
    Display "display." {
        /// Whether the reasoning of a model is shown.
        show_reasoning: bool = false, "HERMES_DISPLAY_SHOW_REASONING";
        /// What happens to a message that arrives while a turn runs: queue (it waits), interrupt
        /// (it stops the turn) or steer (the model gets it with the next tool result).
        busy_input_mode: BusyPolicy = BusyPolicy::Queue, "HERMES_GATEWAY_BUSY_INPUT_MODE";
        /// What a chat shows about tool calls, where messages can be edited: off, new (the tool) or
        /// all (the tool and its input).
        tool_progress: ToolProgress = ToolProgress::All, "HERMES_DISPLAY_TOOL_PROGRESS";
    }
}

section! {
    /// How turns are displayed on Discord.
    DisplayDiscord "display.platforms.discord." {
        /// Whether answers are streamed on Discord. Default: streaming.enabled.
        streaming: Option<bool> = None, "HERMES_DISPLAY_DISCORD_STREAMING";
        /// What Discord shows about tool calls. Default: display.tool_progress.
        tool_progress: Option<ToolProgress> = None, "HERMES_DISPLAY_DISCORD_TOOL_PROGRESS";
    }
}

section! {
    /// Streaming of answers in chats.
    Streaming "streaming." {
        /// Whether answers are streamed, where messages can be edited.
        enabled: bool = false, "HERMES_STREAMING_ENABLED";
        /// Seconds between two edits of a message; the platform may require more.
        edit_interval: f64 = 0.8, "HERMES_STREAMING_EDIT_INTERVAL";
    }
}

section! {
    /// Stored conversations.
    Sessions "sessions." {
        /// Whether the gateway removes inactive conversations once a day.
        auto_prune: bool = false, "HERMES_SESSIONS_AUTO_PRUNE";
        /// Days of inactivity after which a conversation is removed.
        retention_days: u64 = 90, "HERMES_SESSIONS_RETENTION_DAYS", at_least 1;
    }
}

section! {
    /// The log file in the hermes home.
    Logging "logging." {
        /// The level of the log file: error, warn, info, debug or trace.
        level: LevelFilter = LevelFilter::INFO, "HERMES_LOG_LEVEL";
        /// The size in MB at which the log file is rotated.
        max_size_mb: u64 = 5, "HERMES_LOG_MAX_SIZE_MB", at_least 1;
        /// How many rotated log files are kept.
        backup_count: u64 = 3, "HERMES_LOG_BACKUP_COUNT";
    }
}

section! {
    /// Skills of the agent.
    Skills "skills." {
        /// Directories with further skills; a relative path is below the hermes home. They are
        /// mounted read-only into containers as `/root/.hermes/external_skills/0` and so on.
        external_dirs: Vec<String> = Vec::new(), "HERMES_SKILLS_EXTERNAL_DIRS";
    }
}

section! {
    /// Keys without a section.
    General "" {
        /// Plain commands that run without a question, as `hermes` in Python reads them: verbatim or
        /// with `*`, `?` and `[ab]`, and never with pipes, several commands or other shell syntax.
        /// `approvals.allow` understands other spellings of a command.
        command_allowlist: Vec<TextPattern> = Vec::new(), "HERMES_COMMAND_ALLOWLIST";
        /// The most characters that one read of a file returns.
        file_read_max_chars: u64 = 100_000, "HERMES_FILE_READ_MAX_CHARS", at_least 1;
        /// Your own servers, by the name that `model.provider` uses.
        providers: Servers = Servers::default(), "HERMES_PROVIDERS";
        /// Your own servers as a list of entries with `name`, as older versions write them.
        custom_providers: ServerList = ServerList::default(), "HERMES_CUSTOM_PROVIDERS";
        /// The models to try, in order, when the first one fails.
        fallback_providers: Fallbacks = Fallbacks::default(), "HERMES_FALLBACK_PROVIDERS";
        /// The model to try after `fallback_providers`, as older versions write it.
        fallback_model: Fallbacks = Fallbacks::default(), "HERMES_FALLBACK_MODEL";
        /// The answer to unknown users who write to a bot: pair (a pairing code) or ignore (none).
        /// Default: pair, unless allowed users are listed.
        unauthorized_dm_behavior: Option<StrangerPolicy> = None, "HERMES_UNAUTHORIZED_DM_BEHAVIOR";
        /// Whether each user in a group has their own session.
        group_sessions_per_user: bool = true, "HERMES_GROUP_SESSIONS_PER_USER";
        /// Whether each user in a thread has their own session.
        thread_sessions_per_user: bool = false, "HERMES_THREAD_SESSIONS_PER_USER";
    }
}

macro_rules! config {
    ($($field:ident: $section:ident),+ $(,)?) => {
        /// The whole configuration.
        #[derive(Debug, Clone, PartialEq)]
        pub struct Config {
            $(pub $field: $section,)+
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
    auxiliary_approval: AuxiliaryApproval,
    code_execution: CodeExecution,
    tool_output: ToolOutput,
    security: Security,
    model: Model,
    provider_routing: ProviderRouting,
    agent: Agent,
    loop_guardrails: LoopGuardrails,
    loop_warn_after: LoopWarnAfter,
    loop_stop_after: LoopStopAfter,
    display: Display,
    display_discord: DisplayDiscord,
    streaming: Streaming,
    sessions: Sessions,
    logging: Logging,
    skills: Skills,
    general: General,
}

/// All keys, in the order of the reference page.
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
    use crate::unused::unused_reason;
    use crate::yaml::Node;

    #[test]
    fn paths_and_variables_are_unique_and_every_key_is_documented() {
        let mut seen = HashSet::new();
        for key in all() {
            assert!(seen.insert(key.path), "{} is defined twice", key.path);
            assert!(seen.insert(key.variable), "{} is used twice", key.variable);
            assert!(key.doc.trim().ends_with('.'), "{} has no sentence", key.path);
            assert!(unused_reason(key.path).is_none(), "{} is used", key.path);
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
            assert_eq!(key.check(&Node::from_text(&text), &mut notes), Ok(default), "{}", key.path);
            assert_eq!(notes, [], "{}", key.path);
        }
    }
}
