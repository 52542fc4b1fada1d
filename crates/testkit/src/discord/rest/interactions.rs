//! Responses to buttons and commands.

use std::time::Duration;

use serde_json::{Value, json};

use super::super::mutations::EPHEMERAL;
use super::super::request::{
    ApiCall, ApiResult, FakeApiError, api_error, check_application, check_fields, invalid_form, snowflake,
};
use super::super::state::{FakeMessage, Snowflake, World};
use super::super::users::empty_message;
use super::draft::{DraftSource, MessageDraft};
use super::messages;

/// The flag of a deferred response.
const LOADING: u64 = 1 << 7;
/// How soon a client must respond.
const RESPONSE_LIMIT: Duration = Duration::from_secs(3);
/// How long a client may send more messages.
const FOLLOWUP_LIMIT: Duration = Duration::from_secs(15 * 60);

/// Everything below `/interactions` and `/webhooks`.
pub(super) fn route(world: &mut World, call: &ApiCall<'_>) -> ApiResult {
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
            let message = there.ok_or_else(|| api_error(10_008))?.id;
            match method {
                "GET" => message_response(world, message),
                "PATCH" => {
                    if let Some(message) = world.messages.get_mut(&message) {
                        message.flags &= !LOADING;
                    }
                    messages::apply_edit(world, call, &call.body, message)
                }
                "DELETE" => {
                    world.delete_message(message);
                    Ok((204, Value::Null))
                }
                _ => Err(api_error(405)),
            }
        }
        _ => Err(api_error(404)),
    }
}

fn message_response(world: &World, message: Snowflake) -> ApiResult {
    let message = world.messages.get(&message).ok_or_else(|| api_error(10_008))?;
    Ok((200, world.message_json(message)))
}

/// The interaction of a token that has a response and is not too old.
fn by_token(world: &World, application: &str, token: &str) -> Result<Snowflake, FakeApiError> {
    check_application(world, application).map_err(|_| api_error(10_015))?;
    let found = world.interactions.values().find(|interaction| interaction.token == token);
    let found = found
        .filter(|interaction| interaction.at.elapsed() < FOLLOWUP_LIMIT && interaction.response.is_some());
    found.map(|interaction| interaction.id).ok_or_else(|| api_error(10_015))
}

fn callback(world: &mut World, call: &ApiCall<'_>, id: &str, token: &str) -> ApiResult {
    let id = snowflake(id)?;
    let known = world.interactions.get(&id).filter(|interaction| interaction.token == token);
    let interaction = known.ok_or_else(|| api_error(10_062))?.clone();
    if interaction.response.is_some() {
        return Err(api_error(40_060));
    }
    if interaction.at.elapsed() > RESPONSE_LIMIT {
        return Err(api_error(10_062));
    }
    check_fields(&call.body, "_", &["type", "data"])?;
    let (data, none) = (&call.body["data"], json!({}));
    let data = if data.is_null() { &none } else { data };
    let kind = call.body["type"].as_u64().unwrap_or_default();
    let original = match (kind, interaction.message) {
        (4, _) => Some(create_message(world, call, data, id, 0)?),
        (5, _) => {
            check_fields(data, "data", &["flags"])?;
            Some(create_message(world, call, data, id, LOADING)?)
        }
        (6, Some(message)) => Some(message),
        (7, Some(message)) => {
            messages::apply_edit(world, call, data, message)?;
            Some(message)
        }
        (8, _) => {
            check_fields(data, "data", &["choices"])?;
            None
        }
        (9, _) => {
            check_fields(data, "data", &["custom_id", "title", "components"])?;
            None
        }
        _ => {
            return Err(invalid_form(
                "type",
                "BASE_TYPE_CHOICES",
                "The response does not fit the interaction",
            ));
        }
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

/// Creates the message of a response.
fn create_message(
    world: &mut World,
    call: &ApiCall<'_>,
    data: &Value,
    interaction: Snowflake,
    flag: u64,
) -> Result<Snowflake, FakeApiError> {
    let draft = MessageDraft::check(world, data, &call.files, &[], DraftSource::Interaction)?;
    if draft.is_empty() && flag & LOADING == 0 {
        return Err(api_error(50_006));
    }
    let Some(asked) = world.interactions.get(&interaction) else { return Err(api_error(10_062)) };
    let (channel, kind, bot) = (asked.channel, asked.kind, world.bot);
    let kind = if kind == 2 { 20 } else { 0 };
    let mut message =
        FakeMessage { kind, interaction: Some(interaction), ..empty_message(world.next_id(), channel, bot) };
    draft.apply(world, &mut message);
    message.flags |= flag;
    Ok(world.add_message(message))
}

fn followup(world: &mut World, call: &ApiCall<'_>, id: Snowflake) -> ApiResult {
    let message = create_message(world, call, &call.body, id, 0)?;
    message_response(world, message)
}
