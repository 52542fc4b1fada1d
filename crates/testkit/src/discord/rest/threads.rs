//! Channels and threads.

use serde_json::{Value, json};

use super::super::gateway::GUILDS;
use super::super::request::{
    Call, Outcome, Refusal, id_in, invalid, only, refuse, snowflake, text, unquoted,
};
use super::super::state::{FakeChannel, FakeChannelKind, Snowflake, World, iso, made_at};
use super::draft::Source;
use super::messages::{self, channel, message};

/// Everything below `/channels`.
pub(super) fn route(world: &mut World, call: &Call<'_>) -> Outcome {
    let path = call.path.get(1..).unwrap_or_default();
    match (call.method, path) {
        ("GET", [place]) => Ok((200, world.channel_json(channel(world, place)?))),
        ("PATCH", [place]) => modify(world, call, place),
        ("GET", [place, "messages"]) => messages::list(world, call, place),
        ("POST", [place, "messages"]) => messages::create(world, call, place),
        ("GET", [place, "messages", id]) => Ok((200, world.message_json(message(world, place, id)?))),
        ("PATCH", [place, "messages", id]) => messages::edit(world, call, place, id),
        ("DELETE", [place, "messages", id]) => messages::delete(world, place, id),
        (_, [place, "messages", id, "reactions", emoji, who]) => {
            messages::reaction(world, call, (place, id), emoji, who)
        }
        ("POST", [place, "typing"]) => messages::typing(world, place),
        ("POST", [place, "messages", id, "threads"]) => from_message(world, call, place, id),
        ("POST", [place, "threads"]) => start(world, call, place),
        ("GET", [place, "threads", "archived", "public"]) => {
            archived(world, call, place, FakeChannelKind::Thread)
        }
        ("GET", [place, "users", "@me", "threads", "archived", "private"]) => {
            archived(world, call, place, FakeChannelKind::PrivateThread)
        }
        (_, [place, "thread-members", "@me"]) => membership(world, call, place),
        (_, [_] | [_, "messages" | "typing" | "threads"] | [_, "messages", _]) => Err(refuse(405)),
        _ => Err(refuse(404)),
    }
}

/// `POST /users/@me/channels`.
pub(super) fn open_dm(world: &mut World, call: &Call<'_>) -> Outcome {
    only(&call.body, "_", &["recipient_id"])?;
    let required = || invalid("recipient_id", "BASE_TYPE_REQUIRED", "This field is required");
    let user = id_in(&call.body["recipient_id"]).ok_or_else(required)?;
    if !world.users.contains_key(&user) {
        return Err(refuse(10_013));
    }
    let id = world.dm(user);
    answer(world, id, 200)
}

fn answer(world: &World, id: Snowflake, status: u16) -> Outcome {
    let channel = world.channels.get(&id).ok_or_else(|| refuse(10_003))?;
    Ok((status, world.channel_json(channel)))
}

fn modify(world: &mut World, call: &Call<'_>, place: &str) -> Outcome {
    let id = channel(world, place)?.id;
    let body = &call.body;
    let known = [
        "name", "topic", "archived", "locked", "auto_archive_duration", "rate_limit_per_user", "invitable",
        "flags", "applied_tags",
    ];
    only(body, "_", &known)?;
    let name = if body["name"].is_null() { None } else { Some(text(body, "name", 1, 100)?.to_owned()) };
    let duration = auto_archive(body)?;
    let Some(channel) = world.channels.get_mut(&id) else { return Err(refuse(10_003)) };
    if !channel.kind.is_thread() && ["archived", "locked"].iter().any(|key| body.get(key).is_some()) {
        return Err(refuse(50_024));
    }
    let opens = body["archived"] == false;
    if channel.archived && !opens {
        return Err(refuse(50_083));
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
    let (status, json) = answer(world, id, 200)?;
    world.dispatch(GUILDS, guild, event, &json);
    Ok((status, json))
}

fn auto_archive(body: &Value) -> Result<u64, Refusal> {
    match body["auto_archive_duration"].as_u64() {
        Some(minutes @ (60 | 1440 | 4320 | 10_080)) => Ok(minutes),
        None if body["auto_archive_duration"].is_null() => Ok(1440),
        _ => {
            let why = "Value must be one of (60, 1440, 4320, 10080).";
            Err(invalid("auto_archive_duration", "BASE_TYPE_CHOICES", why))
        }
    }
}

/// Whether the bot may make threads, and whether there can be any here.
fn allowed(world: &World, place: &str) -> Result<Snowflake, Refusal> {
    let channel = channel(world, place)?;
    if world.injected.no_threads {
        return Err(Refusal { fault: false, ..refuse(50_013) });
    }
    match channel.kind {
        FakeChannelKind::Text | FakeChannelKind::Forum | FakeChannelKind::Media => Ok(channel.id),
        FakeChannelKind::Dm | FakeChannelKind::Thread | FakeChannelKind::PrivateThread => Err(refuse(50_024)),
    }
}

fn from_message(world: &mut World, call: &Call<'_>, place: &str, id: &str) -> Outcome {
    let parent = allowed(world, place)?;
    if channel(world, place)?.kind.is_forum() {
        return Err(refuse(50_024));
    }
    let message = message(world, place, id)?;
    let from = message.id;
    only(&call.body, "_", &["name", "auto_archive_duration", "rate_limit_per_user"])?;
    let name = text(&call.body, "name", 1, 100)?;
    let duration = auto_archive(&call.body)?;
    if message.thread.is_some() {
        return Err(refuse(160_004));
    }
    let bot = world.bot;
    let thread = world.start_thread(bot, parent, Some(from), name, FakeChannelKind::Thread, duration);
    answer(world, thread, 201)
}

/// A thread of its own, or a post of a forum with its first message.
fn start(world: &mut World, call: &Call<'_>, place: &str) -> Outcome {
    let parent = allowed(world, place)?;
    let body = &call.body;
    let (is_forum, wants_tags) = {
        let channel = channel(world, place)?;
        (channel.kind.is_forum(), channel.requires_tags)
    };
    let mut known = vec!["name", "auto_archive_duration", "rate_limit_per_user"];
    known.extend(if is_forum { ["message", "applied_tags"] } else { ["type", "invitable"] });
    // One client says for a post, too, what it would be by itself.
    if is_forum && body["type"] == 11 {
        known.push("type");
    }
    only(body, "_", &known)?;
    let name = text(body, "name", 1, 100)?;
    let duration = auto_archive(body)?;
    let kind = match body["type"].as_u64() {
        _ if is_forum => FakeChannelKind::Thread,
        Some(11) => FakeChannelKind::Thread,
        Some(12) => FakeChannelKind::PrivateThread,
        None if body["type"].is_null() => FakeChannelKind::PrivateThread,
        _ => return Err(invalid("type", "BASE_TYPE_CHOICES", "Value must be one of {10, 11, 12}.")),
    };
    if is_forum && !body["message"].is_object() {
        return Err(invalid("message", "BASE_TYPE_REQUIRED", "This field is required"));
    }
    if wants_tags && body["applied_tags"].as_array().is_none_or(Vec::is_empty) {
        return Err(refuse(40_067));
    }
    // Nothing is begun with a first message that cannot be.
    let draft = is_forum.then(|| messages::check(world, call, &body["message"], Source::Post)).transpose()?;
    let bot = world.bot;
    let thread = world.start_thread(bot, parent, None, name, kind, duration);
    // The first message of a post has the id of its thread.
    let first =
        draft.map(|draft| messages::new(world, draft, &body["message"], thread, thread)).transpose()?;
    let (status, mut json) = answer(world, thread, 201)?;
    if let Some(first) = first {
        json["message"] = first;
    }
    Ok((status, json))
}

/// `GET /guilds/{guild}/threads/active`.
pub(super) fn active(world: &World, guild: &str) -> Outcome {
    let guild = world.guilds.get(&snowflake(guild)?).ok_or_else(|| refuse(10_004))?.id;
    let is_open =
        |thread: &&FakeChannel| thread.kind.is_thread() && thread.guild == Some(guild) && !thread.archived;
    let threads: Vec<&FakeChannel> = world.channels.values().filter(is_open).rev().collect();
    let joined = threads.iter().filter(|thread| thread.members.contains(&world.bot));
    let members: Vec<Value> = joined.map(|thread| World::thread_member_json(thread.id, world.bot)).collect();
    let threads: Vec<Value> = threads.iter().map(|thread| world.channel_json(thread)).collect();
    Ok((200, json!({"threads": threads, "members": members})))
}

/// The archived threads of a channel that all can see, those archived last first; or those by invitation that the bot is in,
/// the newest first.
fn archived(world: &World, call: &Call<'_>, place: &str, kind: FakeChannelKind) -> Outcome {
    let place = channel(world, place)?;
    if place.kind.is_thread() || place.kind == FakeChannelKind::Dm {
        return Err(refuse(50_024));
    }
    let limit: usize = call.param("limit").map_or(Ok(50), str::parse).unwrap_or_default();
    if !(2..=100).contains(&limit) {
        return Err(invalid("limit", "NUMBER_TYPE_MAX", "int value should be between 2 and 100."));
    }
    let before = call.param("before").map(unquoted);
    let since = |thread: &FakeChannel| thread.archived_at.unwrap_or_else(|| made_at(thread.id));
    let mut threads: Vec<&FakeChannel> = world.threads_of(place.id);
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

fn membership(world: &mut World, call: &Call<'_>, place: &str) -> Outcome {
    let (id, kind) = {
        let channel = channel(world, place)?;
        (channel.id, channel.kind)
    };
    if !kind.is_thread() {
        return Err(refuse(50_024));
    }
    let (bot, guild) = (world.bot, world.guild_of(id));
    let Some(thread) = world.channels.get_mut(&id) else { return Err(refuse(10_003)) };
    let changed = match call.method {
        "GET" if thread.members.contains(&bot) => return Ok((200, World::thread_member_json(id, bot))),
        "GET" => return Err(refuse(10_013)),
        "PUT" => thread.members.insert(bot),
        "DELETE" => thread.members.remove(&bot),
        _ => return Err(refuse(405)),
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
