//! `hermes send`: says something in chats that nobody asked for there.

use std::fs::File;
use std::io::{self, IsTerminal, Read};
use std::process::ExitCode;

use hermes_gateway::{ChatAddress, DeliveryTarget, TargetError};
use hermes_types::Timestamp;
use serde_json::{Value, json};

use crate::Context;
use crate::args::SendArgs;
use crate::command::config::settings;
use crate::command::gateway;
use crate::screen::OutputFormat;
use hermes_config::failure::{Failure, FailureKind};
use hermes_config::keys::Config;
use hermes_config::resolve;
use hermes_config::resolve::chat::{self, HomeChannel};
use hermes_config::resolve::random_hex;

/// The longest message in bytes. What is longer is refused, not cut.
const MAX_MESSAGE_BYTES: u64 = 256 << 10;

pub(crate) fn run(args: SendArgs, context: &Context) -> Result<ExitCode, Failure> {
    let config = settings(context)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        if args.list {
            let store = resolve::store::find(context).await?;
            return list(context, &chat::home_channels(config, store.as_ref()).await?);
        }
        let text = message_text(&args)?;
        let store = resolve::store::open(context).await?;
        let homes = chat::home_channels(config, Some(&store)).await?;
        let chats = resolve_targets(args.to.as_ref(), &homes)?;
        check_served(context, config, &chats)?;
        let random = random_hex()?;
        let mark = |address: &ChatAddress| format!("send:{random}:{}", address.chat);
        let parts: Vec<_> =
            chats.iter().flat_map(|address| address.outbox_parts(&text, &mark(address))).collect();
        let queued = parts.len();
        store
            .enqueue_reply(Vec::new(), parts, Timestamp::now())
            .await
            .map_err(resolve::store::store_failure)?;
        store.close().await;
        report_sent(context, &args, &text, &chats, queued)
    })
}

/// Makes sure that somebody will deliver it. A gateway that runs may have been told more than is known here.
fn check_served(context: &Context, config: &Config, chats: &[ChatAddress]) -> Result<(), Failure> {
    let accounts: Vec<_> = chat::accounts(config)?.iter().map(chat::ChatAccount::platform).collect();
    match chats.iter().find(|address| !accounts.contains(&address.platform)) {
        Some(address) if !is_running(context) => {
            let word = address.platform.as_str();
            Err(Failure::new(
                FailureKind::Configuration,
                format!("{word} is not set up, and no gateway is running"),
            )
            .hint(format!(
                "`hermes config set {word}.bot_token -` reads the token of a bot from standard input"
            )))
        }
        _ => Ok(()),
    }
}

fn is_running(context: &Context) -> bool {
    gateway::facts(context)["running"] == true
}

/// Says what became of it.
fn report_sent(
    context: &Context,
    args: &SendArgs,
    text: &str,
    chats: &[ChatAddress],
    queued: usize,
) -> Result<ExitCode, Failure> {
    let is_running = is_running(context);
    if context.screen.format == OutputFormat::Json {
        let to: Vec<Value> = chats.iter().map(facts).collect();
        context.screen.json(&json!({"to": to, "queued": queued, "running": is_running}))?;
    } else if chats.is_empty() {
        context.screen.line(text)?;
    } else if !args.quiet {
        context.screen.line(match is_running {
            true => "queued; the gateway delivers it now",
            false => "queued; no gateway is running: it is delivered when one starts",
        })?;
    }
    Ok(ExitCode::SUCCESS)
}

fn facts(address: &ChatAddress) -> Value {
    json!({"platform": address.platform.as_str(), "chat": address.chat})
}

/// The chats that are meant. Where nothing is said it is the home channel, if there is one and no other.
fn resolve_targets(to: Option<&DeliveryTarget>, homes: &[HomeChannel]) -> Result<Vec<ChatAddress>, Failure> {
    let known: Vec<ChatAddress> = homes.iter().map(|home| home.address.clone()).collect();
    let target = match (to, known.as_slice()) {
        (Some(target), _) => target.clone(),
        (None, [] | [_]) => DeliveryTarget::All,
        (None, _) => {
            let words: Vec<&str> = known.iter().map(|home| home.platform.as_str()).collect();
            let message = format!("there are several home channels: {}", words.join(", "));
            return Err(Failure::new(FailureKind::Usage, message).hint("Use `--to` to choose one, or all."));
        }
    };
    target.resolve(None, &known).map_err(|no_way| {
        let kind = match no_way {
            TargetError::NoHome { .. } | TargetError::NoHomes => FailureKind::Configuration,
            TargetError::Unknown(_) | TargetError::InvalidChat { .. } | TargetError::NoOrigin => FailureKind::Usage,
        };
        Failure::new(kind, no_way.to_string())
            .hint("`/sethome` in a chat makes it the home channel, and so does `hermes config set discord.home_channel ID`")
            .hint("`--to discord:CHAT` names a chat by its number")
    })
}

/// What is to be said.
fn message_text(args: &SendArgs) -> Result<String, Failure> {
    let body = match (&args.file, args.text.as_deref()) {
        (Some(path), _) if path.as_os_str() != "-" => {
            let unreadable = |error: io::Error| {
                Failure::new(FailureKind::Usage, format!("{} cannot be read: {error}", path.display()))
            };
            read_text(File::open(path).map_err(unreadable)?).map_err(unreadable)?
        }
        (None, Some(text)) if text != "-" => text.to_owned(),
        (None, None) if io::stdin().is_terminal() => String::new(),
        _ => read_text(io::stdin().lock())?,
    };
    let body = body.trim_end();
    if body.trim().is_empty() {
        return Err(Failure::new(FailureKind::Usage, "there is nothing to say")
            .hint("`hermes send TEXT`, or `hermes send --file PATH`, or text on standard input"));
    }
    if body.len() as u64 >= MAX_MESSAGE_BYTES {
        let message = format!("a message has at most {} KiB", MAX_MESSAGE_BYTES >> 10);
        return Err(Failure::new(FailureKind::Usage, message));
    }
    Ok(match &args.subject {
        Some(subject) => format!("{}\n\n{body}", subject.trim()),
        None => body.to_owned(),
    })
}

/// Reads as much as a message may have, and a little more.
fn read_text(from: impl Read) -> io::Result<String> {
    let mut text = String::new();
    from.take(MAX_MESSAGE_BYTES).read_to_string(&mut text)?;
    Ok(text)
}

fn list(context: &Context, homes: &[HomeChannel]) -> Result<ExitCode, Failure> {
    if context.screen.format == OutputFormat::Json {
        let row = |home: &HomeChannel| {
            let mut facts = facts(&home.address);
            facts["name"] = json!(home.name);
            facts
        };
        context.screen.json(&json!({"homes": homes.iter().map(row).collect::<Vec<_>>()}))?;
    } else if homes.is_empty() {
        context.screen.print_stderr("no platform has a home channel; `/sethome` in a chat makes it one");
    } else {
        let row = |home: &HomeChannel| {
            let ChatAddress { platform, chat } = &home.address;
            vec![platform.as_str().to_owned(), format!("{}:{chat}", platform.as_str()), home.name.clone()]
        };
        let rows: Vec<_> = homes.iter().map(row).collect();
        context.screen.table(&["TARGET", "CHAT", "NAME"], &rows)?;
    }
    Ok(ExitCode::SUCCESS)
}
