//! Channels and threads.

use serde_json::{Value, json};

use super::super::gateway::GUILDS;
use super::super::request::{
    ApiCall, ApiResult, FakeApiError, api_error, check_fields, invalid_form, parse_id, percent_decode,
    snowflake, text,
};
use super::super::state::{FakeChannel, FakeChannelKind, Snowflake, World, created_at, iso};
use super::draft::DraftSource;
use super::messages::{self, channel, message};

/// Everything below `/channels`.
pub(super) fn route(world: &mut World, call: &ApiCall<'_>) -> ApiResult {
    let path = call.path.get(1..).unwrap_or_default();
    match (call.method, path) {
        ("GET", [channel_id]) => Ok((200, world.channel_json(channel(world, channel_id)?))),
        ("PATCH", [channel_id]) => modify(world, call, channel_id),
        ("GET", [channel_id, "messages"]) => messages::list(world, call, channel_id),
        ("POST", [channel_id, "messages"]) => messages::create(world, call, channel_id),
        ("GET", [channel_id, "messages", id]) => {
            Ok((200, world.message_json(message(world, channel_id, id)?)))
        }
        ("PATCH", [channel_id, "messages", id]) => messages::edit(world, call, channel_id, id),
        ("DELETE", [channel_id, "messages", id]) => messages::delete(world, channel_id, id),
        (_, [channel_id, "messages", id, "reactions", emoji, who]) => {
            messages::reaction(world, call, (channel_id, id), emoji, who)
        }
        ("POST", [channel_id, "typing"]) => messages::typing(world, channel_id),
        ("POST", [channel_id, "messages", id, "threads"]) => start_from_message(world, call, channel_id, id),
        ("POST", [channel_id, "threads"]) => start(world, call, channel_id),
        ("GET", [channel_id, "threads", "archived", "public"]) => {
            archived(world, call, channel_id, FakeChannelKind::Thread)
        }
        ("GET", [channel_id, "users", "@me", "threads", "archived", "private"]) => {
            archived(world, call, channel_id, FakeChannelKind::PrivateThread)
        }
        (_, [channel_id, "thread-members", "@me"]) => membership(world, call, channel_id),
        (_, [_] | [_, "messages" | "typing" | "threads"] | [_, "messages", _]) => Err(api_error(405)),
        _ => Err(api_error(404)),
    }
}

/// `POST /users/@me/channels`.
pub(super) fn open_dm(world: &mut World, call: &ApiCall<'_>) -> ApiResult {
    check_fields(&call.body, "_", &["recipient_id"])?;
    let required = || invalid_form("recipient_id", "BASE_TYPE_REQUIRED", "This field is required");
    let user = parse_id(&call.body["recipient_id"]).ok_or_else(required)?;
    if !world.users.contains_key(&user) {
        return Err(api_error(10_013));
    }
    let id = world.dm_channel(user);
    channel_response(world, id, 200)
}

fn channel_response(world: &World, id: Snowflake, status: u16) -> ApiResult {
    let channel = world.channels.get(&id).ok_or_else(|| api_error(10_003))?;
    Ok((status, world.channel_json(channel)))
}

fn modify(world: &mut World, call: &ApiCall<'_>, channel_id: &str) -> ApiResult {
    let id = channel(world, channel_id)?.id;
    let body = &call.body;
    let known = [
        "name", "topic", "archived", "locked", "auto_archive_duration", "rate_limit_per_user", "invitable",
        "flags", "applied_tags",
    ];
    check_fields(body, "_", &known)?;
    let name = if body["name"].is_null() { None } else { Some(text(body, "name", 1, 100)?.to_owned()) };
    let duration = auto_archive(body)?;
    let Some(channel) = world.channels.get_mut(&id) else { return Err(api_error(10_003)) };
    if !channel.kind.is_thread() && ["archived", "locked"].iter().any(|key| body.get(key).is_some()) {
        return Err(api_error(50_024));
    }
    let reopens = body["archived"] == false;
    if channel.archived && !reopens {
        return Err(api_error(50_083));
    }
    channel.name = name.unwrap_or_else(|| std::mem::take(&mut channel.name));
    channel.archived = body["archived"].as_bool().unwrap_or(channel.archived);
    channel.locked = body["locked"].as_bool().unwrap_or(channel.locked);
    if let Some(topic) = body.get("topic") {
        channel.topic = topic.as_str().map(str::to_owned);
    }
    if body.get("auto_archive_duration").is_some() {
        channel.auto_archive = duration;
    }
    let event = if channel.kind.is_thread() { "THREAD_UPDATE" } else { "CHANNEL_UPDATE" };
    let guild = channel.guild;
    let (status, json) = channel_response(world, id, 200)?;
    world.dispatch(GUILDS, guild, event, &json);
    Ok((status, json))
}

fn auto_archive(body: &Value) -> Result<u64, FakeApiError> {
    match body["auto_archive_duration"].as_u64() {
        Some(minutes @ (60 | 1440 | 4320 | 10_080)) => Ok(minutes),
        None if body["auto_archive_duration"].is_null() => Ok(1440),
        _ => {
            let why = "Value must be one of (60, 1440, 4320, 10080).";
            Err(invalid_form("auto_archive_duration", "BASE_TYPE_CHOICES", why))
        }
    }
}

/// Checks that the bot may create threads in this channel.
fn check_thread_parent(world: &World, channel_id: &str) -> Result<Snowflake, FakeApiError> {
    let channel = channel(world, channel_id)?;
    if world.injected.no_threads {
        return Err(FakeApiError { is_violation: false, ..api_error(50_013) });
    }
    match channel.kind {
        FakeChannelKind::Text | FakeChannelKind::Forum | FakeChannelKind::Media => Ok(channel.id),
        FakeChannelKind::Dm | FakeChannelKind::Thread | FakeChannelKind::PrivateThread => {
            Err(api_error(50_024))
        }
    }
}

fn start_from_message(world: &mut World, call: &ApiCall<'_>, channel_id: &str, id: &str) -> ApiResult {
    let parent = check_thread_parent(world, channel_id)?;
    if channel(world, channel_id)?.kind.is_forum() {
        return Err(api_error(50_024));
    }
    let message = message(world, channel_id, id)?;
    let from = message.id;
    check_fields(&call.body, "_", &["name", "auto_archive_duration", "rate_limit_per_user"])?;
    let name = text(&call.body, "name", 1, 100)?;
    let duration = auto_archive(&call.body)?;
    if message.thread.is_some() {
        return Err(api_error(160_004));
    }
    let bot = world.bot;
    let thread = world.start_thread(bot, parent, Some(from), name, FakeChannelKind::Thread, duration);
    channel_response(world, thread, 201)
}

/// A thread without a message that starts it, or a post of a forum with its first message.
fn start(world: &mut World, call: &ApiCall<'_>, channel_id: &str) -> ApiResult {
    let parent = check_thread_parent(world, channel_id)?;
    let body = &call.body;
    let (is_forum, wants_tags) = {
        let channel = channel(world, channel_id)?;
        (channel.kind.is_forum(), channel.requires_tags)
    };
    let mut known = vec!["name", "auto_archive_duration", "rate_limit_per_user"];
    known.extend(if is_forum { ["message", "applied_tags"] } else { ["type", "invitable"] });
    // One client sends the type for a forum post too.
    if is_forum && body["type"] == 11 {
        known.push("type");
    }
    check_fields(body, "_", &known)?;
    let name = text(body, "name", 1, 100)?;
    let duration = auto_archive(body)?;
    let kind = match body["type"].as_u64() {
        _ if is_forum => FakeChannelKind::Thread,
        Some(11) => FakeChannelKind::Thread,
        Some(12) => FakeChannelKind::PrivateThread,
        None if body["type"].is_null() => FakeChannelKind::PrivateThread,
        _ => return Err(invalid_form("type", "BASE_TYPE_CHOICES", "Value must be one of {10, 11, 12}.")),
    };
    if is_forum && !body["message"].is_object() {
        return Err(invalid_form("message", "BASE_TYPE_REQUIRED", "This field is required"));
    }
    if wants_tags && body["applied_tags"].as_array().is_none_or(Vec::is_empty) {
        return Err(api_error(40_067));
    }
    // An invalid first message must not leave a thread behind.
    let draft =
        is_forum.then(|| messages::check(world, call, &body["message"], DraftSource::Post)).transpose()?;
    let bot = world.bot;
    let thread = world.start_thread(bot, parent, None, name, kind, duration);
    // The first message of a post has the id of its thread.
    let first = draft
        .map(|draft| messages::create_from(world, draft, &body["message"], thread, thread))
        .transpose()?;
    let (status, mut json) = channel_response(world, thread, 201)?;
    if let Some(first) = first {
        json["message"] = first;
    }
    Ok((status, json))
}

/// `GET /guilds/{guild}/threads/active`.
pub(super) fn active(world: &World, guild: &str) -> ApiResult {
    let guild = world.guilds.get(&snowflake(guild)?).ok_or_else(|| api_error(10_004))?.id;
    let is_open =
        |thread: &&FakeChannel| thread.kind.is_thread() && thread.guild == Some(guild) && !thread.archived;
    let threads: Vec<&FakeChannel> = world.channels.values().filter(is_open).rev().collect();
    let joined = threads.iter().filter(|thread| thread.members.contains(&world.bot));
    let members: Vec<Value> = joined.map(|thread| World::thread_member_json(thread.id, world.bot)).collect();
    let threads: Vec<Value> = threads.iter().map(|thread| world.channel_json(thread)).collect();
    Ok((200, json!({"threads": threads, "members": members})))
}

/// The archived public threads of a channel, the last archived one first; or the private ones that
/// the bot has joined, the newest first.
fn archived(world: &World, call: &ApiCall<'_>, channel_id: &str, kind: FakeChannelKind) -> ApiResult {
    let channel = channel(world, channel_id)?;
    if channel.kind.is_thread() || channel.kind == FakeChannelKind::Dm {
        return Err(api_error(50_024));
    }
    let limit: usize = call.param("limit").map_or(Ok(50), str::parse).unwrap_or_default();
    if !(2..=100).contains(&limit) {
        return Err(invalid_form("limit", "NUMBER_TYPE_MAX", "int value should be between 2 and 100."));
    }
    let before = call.param("before").map(percent_decode);
    let since = |thread: &FakeChannel| thread.archived_at.unwrap_or_else(|| created_at(thread.id));
    let mut threads: Vec<&FakeChannel> = world.threads_of(channel.id);
    threads.retain(|thread| {
        let is_seen = kind == FakeChannelKind::Thread || thread.members.contains(&world.bot);
        let is_earlier = before.as_ref().is_none_or(|before| match kind {
            FakeChannelKind::Thread => iso(since(thread)) < *before,
            _ => snowflake(before).is_ok_and(|before| thread.id < before),
        });
        thread.archived && thread.kind == kind && is_seen && is_earlier
    });
    threads.sort_by_key(|thread| {
        std::cmp::Reverse(if kind == FakeChannelKind::Thread { since(thread) } else { thread.id })
    });
    let has_more = threads.len() > limit;
    let threads: Vec<Value> =
        threads.into_iter().take(limit).map(|thread| world.channel_json(thread)).collect();
    Ok((200, json!({"threads": threads, "members": [], "has_more": has_more})))
}

fn membership(world: &mut World, call: &ApiCall<'_>, channel_id: &str) -> ApiResult {
    let (id, kind) = {
        let channel = channel(world, channel_id)?;
        (channel.id, channel.kind)
    };
    if !kind.is_thread() {
        return Err(api_error(50_024));
    }
    let (bot, guild) = (world.bot, world.guild_of(id));
    let Some(thread) = world.channels.get_mut(&id) else { return Err(api_error(10_003)) };
    let changed = match call.method {
        "GET" if thread.members.contains(&bot) => return Ok((200, World::thread_member_json(id, bot))),
        "GET" => return Err(api_error(10_013)),
        "PUT" => thread.members.insert(bot),
        "DELETE" => thread.members.remove(&bot),
        _ => return Err(api_error(405)),
    };
    if changed {
        let mut event = json!({
            "id": id.to_string(), "guild_id": guild.unwrap_or_default().to_string(), "member_count": thread.members.len(),
        });
        match call.method {
            "PUT" => event["added_members"] = json!([World::thread_member_json(id, bot)]),
            _ => event["removed_member_ids"] = json!([bot.to_string()]),
        }
        world.dispatch(GUILDS, guild, "THREAD_MEMBERS_UPDATE", &event);
    }
    Ok((204, Value::Null))
}
