//! The application's commands, for everyone or for one guild.

use serde_json::{Value, json};

use super::super::request::{
    ApiCall, ApiResult, FakeApiError, api_error, check_application, check_fields, invalid_form, snowflake,
    text,
};
use super::super::state::{Snowflake, World};

const FIELDS: &[&str] = &[
    "name", "name_localizations", "description", "description_localizations", "options",
    "default_member_permissions", "dm_permission", "default_permission", "integration_types", "contexts",
    "type", "nsfw", "handler", // Clients send a command back as they got it.
    "id", "application_id", "guild_id", "version",
];

/// Everything below `/applications/{id}`.
pub(super) fn route(world: &mut World, call: &ApiCall<'_>, application: &str) -> ApiResult {
    check_application(world, application)?;
    let (guild, rest) = match call.path.get(2..).unwrap_or_default() {
        ["commands", rest @ ..] => (None, rest),
        ["guilds", guild, "commands", rest @ ..] => {
            let guild = snowflake(guild)?;
            world.guilds.get(&guild).ok_or_else(|| api_error(10_004))?;
            (Some(guild), rest)
        }
        _ => return Err(api_error(404)),
    };
    match (call.method, rest) {
        ("GET", []) => Ok((200, all(world, guild))),
        ("PUT", []) => replace(world, call, guild),
        ("POST", []) => {
            check(&call.body)?;
            let known = find(world, guild, &call.body);
            let id = add(world, guild, &call.body, known);
            one(world, guild, id, if known.is_some() { 200 } else { 201 })
        }
        ("GET", [id]) => one(world, guild, snowflake(id)?, 200),
        ("PATCH", [id]) => {
            let id = snowflake(id)?;
            let (_, mut command) = one(world, guild, id, 200)?;
            check_fields(&call.body, "_", FIELDS)?;
            for (key, value) in call.body.as_object().into_iter().flatten() {
                command[key] = value.clone();
            }
            check(&command)?;
            add(world, guild, &command, Some(id));
            one(world, guild, id, 200)
        }
        ("DELETE", [id]) => {
            let id = snowflake(id)?;
            one(world, guild, id, 200)?;
            world.commands.remove(&id);
            Ok((204, Value::Null))
        }
        (_, [] | [_]) => Err(api_error(405)),
        _ => Err(api_error(404)),
    }
}

fn all(world: &World, guild: Option<Snowflake>) -> Value {
    world.commands.values().filter(|(known, _)| *known == guild).map(|(_, command)| command.clone()).collect()
}

fn one(world: &World, guild: Option<Snowflake>, id: Snowflake, status: u16) -> ApiResult {
    let found = world.commands.get(&id).filter(|(known, _)| *known == guild);
    found.map(|(_, command)| (status, command.clone())).ok_or_else(|| api_error(10_063))
}

fn kind(command: &Value) -> u64 {
    command["type"].as_u64().unwrap_or(1)
}

fn find(world: &World, guild: Option<Snowflake>, command: &Value) -> Option<Snowflake> {
    let same = |known: &Value| known["name"] == command["name"] && kind(known) == kind(command);
    let found = world.commands.iter().find(|(_, (place, known))| *place == guild && same(known));
    found.map(|(id, _)| *id)
}

fn replace(world: &mut World, call: &ApiCall<'_>, guild: Option<Snowflake>) -> ApiResult {
    let list = call
        .body
        .as_array()
        .ok_or_else(|| invalid_form("_", "LIST_TYPE_CONVERT", "Only iterables may be used in a ListType"))?;
    if list.iter().filter(|command| kind(command) == 1).count() > 100 {
        return Err(invalid_form(
            "_",
            "APPLICATION_COMMANDS_TOO_MANY",
            "Maximum number of application commands reached (100).",
        ));
    }
    let mut kept = Vec::new();
    for command in list {
        check(command)?;
        if list
            .iter()
            .filter(|other| other["name"] == command["name"] && kind(other) == kind(command))
            .count()
            > 1
        {
            let why = "Application command names must be unique";
            return Err(invalid_form("_", "APPLICATION_COMMANDS_DUPLICATE_NAME", why));
        }
    }
    for command in list {
        let known = find(world, guild, command);
        kept.push(add(world, guild, command, known));
    }
    world.commands.retain(|id, (place, _)| *place != guild || kept.contains(id));
    Ok((200, all(world, guild)))
}

fn add(world: &mut World, guild: Option<Snowflake>, command: &Value, known: Option<Snowflake>) -> Snowflake {
    let id = known.unwrap_or_else(|| world.next_id());
    let version = world.next_id();
    let mut json = json!({
        "id": id.to_string(), "application_id": world.bot.to_string(), "version": version.to_string(), "type": kind(command),
        "default_member_permissions": null, "description": "", "options": [], "nsfw": false,
    });
    for (key, value) in command.as_object().into_iter().flatten() {
        if !["id", "application_id", "guild_id", "version"].contains(&key.as_str()) {
            json[key] = value.clone();
        }
    }
    // Clients send a string or a number; Discord returns a string.
    if let Some(number) = json["default_member_permissions"].as_u64() {
        json["default_member_permissions"] = number.to_string().into();
    }
    if let Some(guild) = guild {
        json["guild_id"] = guild.to_string().into();
    }
    world.commands.insert(id, (guild, json));
    id
}

/// Why Discord would reject a command.
fn check(command: &Value) -> Result<(), FakeApiError> {
    check_fields(command, "_", FIELDS)?;
    let name = text(command, "name", 1, 32)?;
    match kind(command) {
        1 => {
            named(name)?;
            text(command, "description", 1, 100)?;
            options(&command["options"])
        }
        2 | 3 => Ok(()),
        _ => Err(invalid_form("type", "BASE_TYPE_CHOICES", "Value must be one of {1, 2, 3, 4}.")),
    }
}

fn named(name: &str) -> Result<(), FakeApiError> {
    let fits = |char: char| char.is_alphanumeric() && !char.is_uppercase() || "-_'".contains(char);
    if name.chars().all(fits) {
        return Ok(());
    }
    Err(invalid_form("name", "APPLICATION_COMMAND_INVALID_NAME", "Command name is invalid"))
}

fn options(options: &Value) -> Result<(), FakeApiError> {
    let Some(options) = options.as_array() else { return Ok(()) };
    if options.len() > 25 {
        return Err(invalid_form("options", "BASE_TYPE_MAX_LENGTH", "Must be 25 or fewer in length."));
    }
    let known = [
        "type", "name", "name_localizations", "description", "description_localizations", "required",
        "choices", "options", "channel_types", "min_value", "max_value", "min_length", "max_length",
        "autocomplete", "file_types",
    ];
    let mut optional = false;
    for option in options {
        check_fields(option, "options.0", &known)?;
        named(text(option, "name", 1, 32)?)?;
        text(option, "description", 1, 100)?;
        let required = option["required"] == true;
        if required && optional {
            let why = "Required options must be placed before non-required options";
            return Err(invalid_form("options", "APPLICATION_COMMAND_OPTIONS_REQUIRED_INVALID", why));
        }
        optional |= !required;
        if !matches!(option["type"].as_u64(), Some(1..=11)) {
            return Err(invalid_form(
                "options.0.type", "BASE_TYPE_CHOICES", "Value must be between 1 and 11.",
            ));
        }
        if option["choices"].as_array().is_some_and(|choices| choices.len() > 25) {
            return Err(invalid_form(
                "options.0.choices", "BASE_TYPE_MAX_LENGTH", "Must be 25 or fewer in length.",
            ));
        }
        self::options(&option["options"])?;
    }
    Ok(())
}
