//! Answers to presses and commands.

use std::time::Duration;

use serde_json::{Value, json};

use super::super::mutations::EPHEMERAL;
use super::super::request::{Call, Outcome, Refusal, invalid, only, own, refuse, snowflake};
use super::super::state::{FakeMessage, Snowflake, World};
use super::super::users::empty_message;
use super::draft::{Draft, Source};
use super::messages;

/// The flag of an answer that is to come.
const LOADING: u64 = 1 << 7;
/// How soon a client must answer.
const SOON: Duration = Duration::from_secs(3);
/// How long it may say more.
const LATER: Duration = Duration::from_secs(15 * 60);

/// Everything below `/interactions` and `/webhooks`.
pub(super) fn route(world: &mut World, call: &Call<'_>) -> Outcome {
    match (call.method, call.path.as_slice()) {
        ("POST", ["interactions", id, token, "callback"]) => callback(world, call, id, token),
        ("POST", ["webhooks", application, token]) => {
            let id = by_token(world, application, token)?;
            followup(world, call, id)
        }
        (method, ["webhooks", application, token, "messages", message]) => {
            let id = by_token(world, application, token)?;
            let message = match *message {
                "@original" => world.interactions.get(&id).and_then(|interaction| interaction.original),
                other => Some(snowflake(other)?),
            };
            let fits = |message: &&FakeMessage| !message.deleted && message.author == world.bot;
            let there = message.and_then(|id| world.messages.get(&id)).filter(fits);
            let message = there.ok_or_else(|| refuse(10_008))?.id;
            match method {
                "GET" => shown(world, message),
                "PATCH" => {
                    if let Some(message) = world.messages.get_mut(&message) {
                        message.flags &= !LOADING;
                    }
                    messages::changed(world, call, &call.body, message)
                }
                "DELETE" => {
                    world.remove(message);
                    Ok((204, Value::Null))
                }
                _ => Err(refuse(405)),
            }
        }
        _ => Err(refuse(404)),
    }
}

fn shown(world: &World, message: Snowflake) -> Outcome {
    let message = world.messages.get(&message).ok_or_else(|| refuse(10_008))?;
    Ok((200, world.message_json(message)))
}

/// The interaction of a token that is answered and not too old.
fn by_token(world: &World, application: &str, token: &str) -> Result<Snowflake, Refusal> {
    own(world, application).map_err(|_| refuse(10_015))?;
    let found = world.interactions.values().find(|interaction| interaction.token == token);
    let found =
        found.filter(|interaction| interaction.at.elapsed() < LATER && interaction.response.is_some());
    found.map(|interaction| interaction.id).ok_or_else(|| refuse(10_015))
}

fn callback(world: &mut World, call: &Call<'_>, id: &str, token: &str) -> Outcome {
    let id = snowflake(id)?;
    let known = world.interactions.get(&id).filter(|interaction| interaction.token == token);
    let interaction = known.ok_or_else(|| refuse(10_062))?.clone();
    if interaction.response.is_some() {
        return Err(refuse(40_060));
    }
    if interaction.at.elapsed() > SOON {
        return Err(refuse(10_062));
    }
    only(&call.body, "_", &["type", "data"])?;
    let (data, none) = (&call.body["data"], json!({}));
    let data = if data.is_null() { &none } else { data };
    let kind = call.body["type"].as_u64().unwrap_or_default();
    let original = match (kind, interaction.message) {
        (4, _) => Some(say(world, call, data, id, 0)?),
        (5, _) => {
            only(data, "data", &["flags"])?;
            Some(say(world, call, data, id, LOADING)?)
        }
        (6, Some(message)) => Some(message),
        (7, Some(message)) => {
            messages::changed(world, call, data, message)?;
            Some(message)
        }
        (8, _) => {
            only(data, "data", &["choices"])?;
            None
        }
        (9, _) => {
            only(data, "data", &["custom_id", "title", "components"])?;
            None
        }
        _ => return Err(invalid("type", "BASE_TYPE_CHOICES", "The answer does not fit the interaction")),
    };
    if let Some(interaction) = world.interactions.get_mut(&id) {
        interaction.response = Some((kind, data.clone()));
        interaction.original = original;
    }
    if !matches!(call.param("with_response"), Some("1" | "true")) {
        return Ok((204, Value::Null));
    }
    let message = original.and_then(|id| world.messages.get(&id));
    let mut json = json!({"interaction": {"id": id.to_string(), "type": interaction.kind}});
    if let Some(message) = message {
        json["interaction"]["response_message_id"] = message.id.to_string().into();
        json["interaction"]["response_message_loading"] = (message.flags & LOADING != 0).into();
        json["interaction"]["response_message_ephemeral"] = (message.flags & EPHEMERAL != 0).into();
        json["resource"] = json!({"type": kind, "message": world.message_json(message)});
    }
    Ok((200, json))
}

/// Makes the message of an answer.
fn say(
    world: &mut World,
    call: &Call<'_>,
    data: &Value,
    interaction: Snowflake,
    flag: u64,
) -> Result<Snowflake, Refusal> {
    let draft = Draft::check(world, data, &call.files, &[], Source::Interaction)?;
    if draft.is_empty() && flag & LOADING == 0 {
        return Err(refuse(50_006));
    }
    let Some(asked) = world.interactions.get(&interaction) else { return Err(refuse(10_062)) };
    let (channel, kind, bot) = (asked.channel, asked.kind, world.bot);
    let kind = if kind == 2 { 20 } else { 0 };
    let mut message =
        FakeMessage { kind, interaction: Some(interaction), ..empty_message(world.next_id(), channel, bot) };
    draft.put(world, &mut message);
    message.flags |= flag;
    Ok(world.add_message(message))
}

fn followup(world: &mut World, call: &Call<'_>, id: Snowflake) -> Outcome {
    let message = say(world, call, &call.body, id, 0)?;
    shown(world, message)
}
