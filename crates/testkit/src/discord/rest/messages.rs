//! Messages, reactions and typing.

use serde_json::{Value, json};

use super::super::gateway::TYPING;
use super::super::request::{Call, Outcome, Refusal, invalid, refuse, snowflake};
use super::super::state::{FakeChannel, FakeMessage, Snowflake, World, made_at, now_ms};
use super::super::users::empty_message;
use super::draft::{Draft, Source, nonce, reference};

/// For how long a nonce is remembered: Discord says a few minutes.
const REMEMBERED_MS: u64 = 180_000;

/// The channel, if messages can be in it.
pub(super) fn channel<'a>(world: &'a World, id: &str) -> Result<&'a FakeChannel, Refusal> {
    world.channels.get(&snowflake(id)?).ok_or_else(|| refuse(10_003))
}

/// The message, if it is in the channel and still there.
pub(super) fn message<'a>(world: &'a World, place: &str, id: &str) -> Result<&'a FakeMessage, Refusal> {
    let place = channel(world, place)?.id;
    let found = world.messages.get(&snowflake(id)?);
    found.filter(|message| message.channel == place && !message.deleted).ok_or_else(|| refuse(10_008))
}

pub(super) fn list(world: &World, call: &Call<'_>, place: &str) -> Outcome {
    let place = channel(world, place)?;
    if place.kind.is_forum() {
        return Err(refuse(50_024));
    }
    let place = place.id;
    for pair in call.query.split('&').filter(|pair| !pair.is_empty()) {
        let name = pair.split('=').next().unwrap_or_default();
        if !["limit", "before", "after", "around"].contains(&name) {
            return Err(invalid(name, "UNKNOWN_FIELD", "This parameter is not known"));
        }
    }
    let limit: usize = call.param("limit").map_or(Ok(50), str::parse).unwrap_or_default();
    if !(1..=100).contains(&limit) {
        return Err(invalid("limit", "NUMBER_TYPE_MAX", "int value should be between 1 and 100."));
    }
    let bound = |name: &str| call.param(name).map(snowflake).transpose();
    let (before, after, around) = (bound("before")?, bound("after")?, bound("around")?);
    if [before, after, around].iter().flatten().count() > 1 {
        return Err(invalid(
            "before",
            "BASE_TYPE_CHOICES",
            "Only one of before, after and around may be set",
        ));
    }
    let all = world.messages_in(place);
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

pub(super) fn create(world: &mut World, call: &Call<'_>, place: &str) -> Outcome {
    let (id, kind, locked) = {
        let channel = channel(world, place)?;
        (channel.id, channel.kind, channel.locked && channel.archived)
    };
    if kind.is_forum() {
        return Err(refuse(50_008));
    }
    if locked {
        return Err(refuse(50_083));
    }
    let known = nonce(world, call)?.and_then(|id| world.messages.get(&id));
    if let Some(known) = known.filter(|known| made_at(known.id) + REMEMBERED_MS > now_ms()) {
        return Ok((200, world.message_json(known)));
    }
    let draft = check(world, call, &call.body, Source::New)?;
    let message = world.next_id();
    Ok((200, new(world, draft, &call.body, id, message)?))
}

/// Checks the body of a new message.
pub(super) fn check(
    world: &mut World,
    call: &Call<'_>,
    body: &Value,
    source: Source,
) -> Result<Draft, Refusal> {
    let draft = Draft::check(world, body, &call.files, &[], source)?;
    if draft.is_empty() { Err(refuse(50_006)) } else { Ok(draft) }
}

/// Makes a message of a body that was checked, in a place that is fit for it.
pub(super) fn new(
    world: &mut World,
    draft: Draft,
    body: &Value,
    place: Snowflake,
    id: Snowflake,
) -> Result<Value, Refusal> {
    let reference = reference(world, body, place)?;
    let bot = world.bot;
    let mut message = FakeMessage {
        kind: if reference.is_some() { 19 } else { 0 },
        reference,
        nonce: body["nonce"].clone(),
        ..empty_message(id, place, bot)
    };
    draft.put(world, &mut message);
    if !message.nonce.is_null() {
        world.nonces.insert(message.nonce.to_string(), message.id);
    }
    if let Some(channel) = world.channels.get_mut(&place) {
        channel.archived = false;
    }
    world.add_message(message);
    world.messages.get(&id).map(|message| world.message_json(message)).ok_or_else(|| refuse(10_008))
}

pub(super) fn edit(world: &mut World, call: &Call<'_>, place: &str, id: &str) -> Outcome {
    let message = message(world, place, id)?;
    if message.author != world.bot {
        return Err(refuse(50_005));
    }
    let id = message.id;
    changed(world, call, &call.body, id)
}

/// Changes a message of the bot.
pub(super) fn changed(world: &mut World, call: &Call<'_>, body: &Value, id: Snowflake) -> Outcome {
    let Some(mut message) = world.messages.get(&id).cloned() else { return Err(refuse(10_008)) };
    let draft = Draft::check(world, body, &call.files, &message.attachments, Source::Edit)?;
    message.edited = Some(now_ms());
    draft.put(world, &mut message);
    let shows = !message.content.is_empty() || message.embeds != json!([]) || !message.attachments.is_empty();
    if !shows {
        return Err(refuse(50_006));
    }
    let json = world.message_json(&message);
    world.messages.insert(id, message);
    world.tell_change(id);
    Ok((200, json))
}

pub(super) fn delete(world: &mut World, place: &str, id: &str) -> Outcome {
    let message = message(world, place, id)?;
    let (id, others) = (message.id, message.author != world.bot);
    if others && world.guild_of(message.channel).is_none() {
        return Err(refuse(50_003));
    }
    world.remove(id);
    Ok((204, Value::Null))
}

/// `…/reactions/{emoji}/@me` and `…/reactions/{emoji}/{user}`.
pub(super) fn reaction(
    world: &mut World,
    call: &Call<'_>,
    at: (&str, &str),
    emoji: &str,
    who: &str,
) -> Outcome {
    let id = message(world, at.0, at.1)?.id;
    if emoji.is_ascii() && !emoji.contains(':') {
        return Err(refuse(10_014));
    }
    let bot = world.bot;
    match (call.method, who) {
        ("PUT", "@me") => world.react(bot, id, emoji),
        ("DELETE", "@me") => world.unreact(bot, id, emoji),
        ("DELETE", user) => world.unreact(snowflake(user)?, id, emoji),
        _ => return Err(refuse(405)),
    }
    Ok((204, Value::Null))
}

pub(super) fn typing(world: &mut World, place: &str) -> Outcome {
    let id = channel(world, place)?.id;
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
