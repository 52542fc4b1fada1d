//! `hermes send`: sends a message to a chat.

use std::fs::File;
use std::io::{self, IsTerminal, Read};

use hermes_gateway::{ChatAddress, DeliveryTarget, TargetError};
use hermes_types::Timestamp;
use serde_json::{Value, json};

use crate::args::SendArgs;
use crate::command::config::settings;
use crate::command::gateway;
use crate::{Config, Context, Failure, FailureKind, Result, block_on};
use hermes_config::resolve::chat::{self, HomeChannel};
use hermes_config::resolve::{self, random_hex};

/// A longer message is refused.
const MAX_MESSAGE_BYTES: u64 = 256 << 10;

pub(crate) fn run(args: &SendArgs, context: &Context) -> Result<()> {
    let config = settings(context)?;
    block_on(async {
        if args.list {
            let store = resolve::store::find(context).await?;
            return list(context, &chat::home_channels(config, store.as_ref()).await?);
        }
        let text = message_text(args)?;
        let store = resolve::store::open(context).await?;
        let homes = chat::home_channels(config, Some(&store)).await?;
        let chats = resolve_targets(args.to.as_ref(), &homes)?;
        check_served(context, config, &chats)?;
        let random = random_hex()?;
        let parts: Vec<_> = chats
            .iter()
            .flat_map(|address| address.outbox_parts(&text, &format!("send:{random}:{}", address.chat)))
            .collect();
        let queued = parts.len();
        store.enqueue_reply(Vec::new(), parts, Timestamp::now()).await?;
        store.close().await;
        report_queued(context, args, &text, &chats, queued)
    })
}

/// Checks that a gateway will deliver the message. A running one may have other settings than this
/// process.
fn check_served(context: &Context, config: &Config, chats: &[ChatAddress]) -> Result<()> {
    let accounts: Vec<_> = chat::accounts(config)?.iter().map(chat::ChatAccount::platform).collect();
    match chats.iter().find(|address| !accounts.contains(&address.platform)) {
        Some(address) if !is_running(context) => {
            let platform = address.platform.as_str();
            Err(Failure::configuration(format!("{platform} is not set up, and no gateway is running"))
                .hint(format!("Run `hermes config set {platform}.bot_token -` to set the token of a bot.")))
        }
        _ => Ok(()),
    }
}

fn is_running(context: &Context) -> bool {
    gateway::facts(context)["running"] == true
}

fn report_queued(
    context: &Context,
    args: &SendArgs,
    text: &str,
    chats: &[ChatAddress],
    queued: usize,
) -> Result<()> {
    let is_running = is_running(context);
    let to: Vec<Value> = chats.iter().map(facts).collect();
    let text = match (chats, is_running) {
        ([], _) => text,
        _ if args.quiet && !context.screen.is_json() => return Ok(()),
        (_, true) => "queued; the gateway delivers it now",
        (_, false) => "queued; no gateway is running: it is delivered when one starts",
    };
    context.screen.print(&json!({"to": to, "queued": queued, "running": is_running}), text)
}

fn facts(address: &ChatAddress) -> Value {
    json!({"platform": address.platform.as_str(), "chat": address.chat})
}

/// The chats of a target. The default is the home channel, if there is only one.
fn resolve_targets(to: Option<&DeliveryTarget>, homes: &[HomeChannel]) -> Result<Vec<ChatAddress>> {
    let known: Vec<ChatAddress> = homes.iter().map(|home| home.address.clone()).collect();
    let target = match (to, known.as_slice()) {
        (Some(target), _) => target.clone(),
        (None, [] | [_]) => DeliveryTarget::All,
        (None, _) => {
            let platforms: Vec<&str> = known.iter().map(|home| home.platform.as_str()).collect();
            let message = format!("there are several home channels: {}", platforms.join(", "));
            return Err(Failure::usage(message).hint("Use `--to` to choose one, or all."));
        }
    };
    target.resolve(None, &known).map_err(|error| {
        let kind = match error {
            TargetError::NoHome { .. } | TargetError::NoHomes => FailureKind::Configuration,
            TargetError::Unknown(_) | TargetError::InvalidChat { .. } | TargetError::NoOrigin => {
                FailureKind::Usage
            }
        };
        Failure::new(kind, error.to_string())
            .hint("Set the home channel with `/sethome` in a chat, or with `hermes config set discord.home_channel ID`.")
            .hint("Use `--to discord:CHAT` to choose a chat by its id.")
    })
}

fn message_text(args: &SendArgs) -> Result<String> {
    let body = match (&args.file, args.text.as_deref()) {
        (Some(path), _) if path.as_os_str() != "-" => File::open(path)
            .and_then(read_text)
            .map_err(|error| Failure::usage(format!("cannot read {}: {error}", path.display())))?,
        (None, Some(text)) if text != "-" => text.to_owned(),
        (None, None) if io::stdin().is_terminal() => String::new(),
        _ => read_text(io::stdin().lock())?,
    };
    let body = body.trim_end();
    if body.trim().is_empty() {
        return Err(Failure::usage("the message is empty")
            .hint("Use `hermes send TEXT`, `hermes send --file PATH`, or standard input."));
    }
    if body.len() as u64 >= MAX_MESSAGE_BYTES {
        return Err(Failure::usage(format!("the message is longer than {} KiB", MAX_MESSAGE_BYTES >> 10)));
    }
    Ok(match &args.subject {
        Some(subject) => format!("{}\n\n{body}", subject.trim()),
        None => body.to_owned(),
    })
}

fn read_text(from: impl Read) -> io::Result<String> {
    io::read_to_string(from.take(MAX_MESSAGE_BYTES))
}

fn list(context: &Context, homes: &[HomeChannel]) -> Result<()> {
    let document = |home: &HomeChannel| {
        let mut facts = facts(&home.address);
        facts["name"] = json!(home.name);
        facts
    };
    let row = |home: &HomeChannel| {
        let (platform, chat) = (home.address.platform.as_str(), &home.address.chat);
        vec![platform.to_owned(), format!("{platform}:{chat}"), home.name.clone()]
    };
    context.screen.list(
        &json!({"homes": homes.iter().map(document).collect::<Vec<_>>()}),
        "no platform has a home channel; use `/sethome` in a chat",
        &["TARGET", "CHAT", "NAME"],
        &homes.iter().map(row).collect::<Vec<_>>(),
    )
}
