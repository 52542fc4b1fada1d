//! Messages, reactions and typing.

use serde_json::{Value, json};

use super::super::gateway::TYPING;
use super::super::request::{ApiCall, ApiResult, FakeApiError, api_error, invalid_form, snowflake};
use super::super::state::{FakeChannel, FakeMessage, Snowflake, World, created_at, now_ms};
use super::super::users::empty_message;
use super::draft::{DraftSource, MessageDraft, nonce, reference};

/// Discord documents a few minutes.
const NONCE_LIFETIME_MS: u64 = 180_000;

pub(super) fn channel<'a>(world: &'a World, id: &str) -> Result<&'a FakeChannel, FakeApiError> {
    world.channels.get(&snowflake(id)?).ok_or_else(|| api_error(10_003))
}

/// The message, unless it is deleted or in another channel.
pub(super) fn message<'a>(
    world: &'a World,
    channel_id: &str,
    id: &str,
) -> Result<&'a FakeMessage, FakeApiError> {
    let channel_id = channel(world, channel_id)?.id;
    let found = world.messages.get(&snowflake(id)?);
    found.filter(|message| message.channel == channel_id && !message.deleted).ok_or_else(|| api_error(10_008))
}

pub(super) fn list(world: &World, call: &ApiCall<'_>, channel_id: &str) -> ApiResult {
    let channel = channel(world, channel_id)?;
    if channel.kind.is_forum() {
        return Err(api_error(50_024));
    }
    for pair in call.query.split('&').filter(|pair| !pair.is_empty()) {
        let name = pair.split('=').next().unwrap_or_default();
        if !["limit", "before", "after", "around"].contains(&name) {
            return Err(invalid_form(name, "UNKNOWN_FIELD", "This parameter is not known"));
        }
    }
    let limit: usize = call.param("limit").map_or(Ok(50), str::parse).unwrap_or_default();
    if !(1..=100).contains(&limit) {
        return Err(invalid_form("limit", "NUMBER_TYPE_MAX", "int value should be between 1 and 100."));
    }
    let bound = |name: &str| call.param(name).map(snowflake).transpose();
    let (before, after, around) = (bound("before")?, bound("after")?, bound("around")?);
    if [before, after, around].iter().flatten().count() > 1 {
        return Err(invalid_form(
            "before",
            "BASE_TYPE_CHOICES",
            "Only one of before, after and around may be set",
        ));
    }
    let all = world.messages_in(channel.id);
    let fits = |message: &&&FakeMessage| {
        before.is_none_or(|before| message.id < before) && after.is_none_or(|after| message.id > after)
    };
    let mut found: Vec<&FakeMessage> = all.iter().filter(fits).copied().collect();
    if after.is_some() {
        found.truncate(limit);
    }
    if let Some(around) = around {
        let middle = found.iter().position(|message| message.id >= around).unwrap_or(found.len());
        found = found.into_iter().skip(middle.saturating_sub(limit / 2)).take(limit).collect();
    }
    let newest = found.into_iter().rev().take(limit).map(|message| world.message_json(message));
    Ok((200, newest.collect()))
}

pub(super) fn create(world: &mut World, call: &ApiCall<'_>, channel_id: &str) -> ApiResult {
    let (id, kind, locked) = {
        let channel = channel(world, channel_id)?;
        (channel.id, channel.kind, channel.locked && channel.archived)
    };
    if kind.is_forum() {
        return Err(api_error(50_008));
    }
    if locked {
        return Err(api_error(50_083));
    }
    let known = nonce(world, call)?.and_then(|id| world.messages.get(&id));
    if let Some(known) = known.filter(|known| created_at(known.id) + NONCE_LIFETIME_MS > now_ms()) {
        return Ok((200, world.message_json(known)));
    }
    let draft = check(world, call, &call.body, DraftSource::New)?;
    let message = world.next_id();
    Ok((200, create_from(world, draft, &call.body, id, message)?))
}

/// Validates the body of a new message.
pub(super) fn check(
    world: &mut World,
    call: &ApiCall<'_>,
    body: &Value,
    source: DraftSource,
) -> Result<MessageDraft, FakeApiError> {
    let draft = MessageDraft::check(world, body, &call.files, &[], source)?;
    if draft.is_empty() { Err(api_error(50_006)) } else { Ok(draft) }
}

/// Creates a message from a validated body.
pub(super) fn create_from(
    world: &mut World,
    draft: MessageDraft,
    body: &Value,
    channel_id: Snowflake,
    id: Snowflake,
) -> Result<Value, FakeApiError> {
    let reference = reference(world, body, channel_id)?;
    let bot = world.bot;
    let mut message = FakeMessage {
        kind: if reference.is_some() { 19 } else { 0 },
        reference,
        nonce: body["nonce"].clone(),
        ..empty_message(id, channel_id, bot)
    };
    draft.apply(world, &mut message);
    if !message.nonce.is_null() {
        world.nonces.insert(message.nonce.to_string(), message.id);
    }
    if let Some(channel) = world.channels.get_mut(&channel_id) {
        channel.archived = false;
    }
    world.add_message(message);
    world.messages.get(&id).map(|message| world.message_json(message)).ok_or_else(|| api_error(10_008))
}

pub(super) fn edit(world: &mut World, call: &ApiCall<'_>, channel_id: &str, id: &str) -> ApiResult {
    let message = message(world, channel_id, id)?;
    if message.author != world.bot {
        return Err(api_error(50_005));
    }
    let id = message.id;
    apply_edit(world, call, &call.body, id)
}

/// Edits a message of the bot.
pub(super) fn apply_edit(world: &mut World, call: &ApiCall<'_>, body: &Value, id: Snowflake) -> ApiResult {
    let Some(mut message) = world.messages.get(&id).cloned() else { return Err(api_error(10_008)) };
    let draft = MessageDraft::check(world, body, &call.files, &message.attachments, DraftSource::Edit)?;
    message.edited = Some(now_ms());
    draft.apply(world, &mut message);
    let has_content =
        !message.content.is_empty() || message.embeds != json!([]) || !message.attachments.is_empty();
    if !has_content {
        return Err(api_error(50_006));
    }
    let json = world.message_json(&message);
    world.messages.insert(id, message);
    world.dispatch_edit(id);
    Ok((200, json))
}

pub(super) fn delete(world: &mut World, channel_id: &str, id: &str) -> ApiResult {
    let message = message(world, channel_id, id)?;
    let (id, others) = (message.id, message.author != world.bot);
    if others && world.guild_of(message.channel).is_none() {
        return Err(api_error(50_003));
    }
    world.delete_message(id);
    Ok((204, Value::Null))
}

/// `…/reactions/{emoji}/@me` and `…/reactions/{emoji}/{user}`.
pub(super) fn reaction(
    world: &mut World,
    call: &ApiCall<'_>,
    at: (&str, &str),
    emoji: &str,
    who: &str,
) -> ApiResult {
    let id = message(world, at.0, at.1)?.id;
    if emoji.is_ascii() && !emoji.contains(':') {
        return Err(api_error(10_014));
    }
    let bot = world.bot;
    match (call.method, who) {
        ("PUT", "@me") => world.add_reaction(bot, id, emoji),
        ("DELETE", "@me") => world.remove_reaction(bot, id, emoji),
        ("DELETE", user) => world.remove_reaction(snowflake(user)?, id, emoji),
        _ => return Err(api_error(405)),
    }
    Ok((204, Value::Null))
}

pub(super) fn typing(world: &mut World, channel_id: &str) -> ApiResult {
    let id = channel(world, channel_id)?.id;
    world.typing.push(id);
    let guild = world.guild_of(id);
    let mut event = json!({
        "channel_id": id.to_string(), "user_id": world.bot.to_string(), "timestamp": now_ms() / 1000,
    });
    if let Some(guild) = guild {
        event["guild_id"] = guild.to_string().into();
        event["member"] = world.member_json(guild, world.bot);
    }
    world.dispatch(TYPING, guild, "TYPING_START", &event);
    Ok((204, Value::Null))
}
