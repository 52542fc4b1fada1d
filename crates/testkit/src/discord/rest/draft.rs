//! Validates the body of a message before it is used.

use serde_json::{Value, json};

use super::super::request::{
    ApiCall, FakeApiError, UploadedFile, api_error, check_fields, invalid_form, parse_id, text,
};
use super::super::state::{DownloadBehavior, FakeAttachment, FakeMessage, Snowflake, World};

/// A validated body. Fields that the client did not send are none.
#[derive(Debug, Default)]
pub(super) struct MessageDraft {
    pub(super) content: Option<String>,
    pub(super) embeds: Option<Value>,
    pub(super) components: Option<Value>,
    pub(super) flags: Option<u64>,
    allowed: Value,
    attachments: Option<Vec<FakeAttachment>>,
}

const COMMON_FIELDS: &[&str] =
    &["content", "embeds", "components", "flags", "allowed_mentions", "attachments", "tts", "payload_json"];
const NEW_MESSAGE_FIELDS: &[&str] = &["nonce", "enforce_nonce", "message_reference", "sticker_ids", "poll"];
const KNOWN_FLAGS: u64 = 1 << 2 | 1 << 12;
/// Without a paid plan.
const MAX_FILE_BYTES: usize = 10 << 20;

/// Where a draft comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DraftSource {
    New,
    /// The first message of a forum post.
    Post,
    Edit,
    /// A response to an interaction, which may be visible to one user only.
    Interaction,
}

impl MessageDraft {
    /// Validates a body; `existing` are the files that the message already has.
    pub(super) fn check(
        world: &mut World,
        body: &Value,
        files: &[UploadedFile],
        existing: &[FakeAttachment],
        source: DraftSource,
    ) -> Result<Self, FakeApiError> {
        let more: &[&str] = match source {
            DraftSource::New => NEW_MESSAGE_FIELDS,
            DraftSource::Post => &["sticker_ids"],
            DraftSource::Edit | DraftSource::Interaction => &[],
        };
        let fields = [COMMON_FIELDS, more].concat();
        check_fields(body, "_", &fields)?;
        let mut draft = Self { allowed: body["allowed_mentions"].clone(), ..Self::default() };
        check_mentions(&draft.allowed)?;
        if !body["content"].is_null() {
            draft.content = Some(text(body, "content", 0, 2000)?.trim().to_owned());
        } else if source == DraftSource::Edit && body.get("content").is_some() {
            draft.content = Some(String::new());
        }
        if !body["embeds"].is_null() {
            check_embeds(&body["embeds"])?;
            draft.embeds = Some(body["embeds"].clone());
        }
        if !body["components"].is_null() {
            check_rows(&body["components"])?;
            draft.components = Some(body["components"].clone());
        }
        if !body["flags"].is_null() {
            let known = KNOWN_FLAGS | if source == DraftSource::Interaction { 1 << 6 } else { 0 };
            let flags = body["flags"].as_u64().filter(|flags| flags & !known == 0);
            draft.flags =
                Some(flags.ok_or_else(|| invalid_form("flags", "BASE_TYPE_CHOICES", "Invalid flags."))?);
        }
        if !body["attachments"].is_null() || !files.is_empty() {
            draft.attachments = Some(attachments(world, &body["attachments"], files, existing)?);
        }
        Ok(draft)
    }

    /// Whether the message would be empty.
    pub(super) fn is_empty(&self) -> bool {
        let none = |list: &Option<Value>| list.as_ref().is_none_or(|list| list == &json!([]));
        self.content.as_ref().is_none_or(String::is_empty)
            && none(&self.embeds)
            && self.attachments.as_ref().is_none_or(Vec::is_empty)
    }

    /// Applies the draft to a message.
    pub(super) fn apply(self, world: &World, message: &mut FakeMessage) {
        if let Some(content) = self.content {
            let old = std::mem::replace(&mut message.content, content);
            if message.edited.is_some() {
                message.edits.push(old);
            }
            let (users, roles, everyone) = world.parse_mentions(&message.content);
            let may = |kind: &str| self.allowed.is_null() || has(&self.allowed["parse"], kind);
            let named = |kind: &str, id: &Snowflake| {
                let list = self.allowed[kind].as_array();
                list.is_some_and(|list| list.iter().any(|known| parse_id(known) == Some(*id)))
            };
            message.mentions = users.into_iter().filter(|id| may("users") || named("users", id)).collect();
            message.mention_roles =
                roles.into_iter().filter(|id| may("roles") || named("roles", id)).collect();
            message.mention_everyone = everyone && may("everyone");
        }
        let answered = message.reference.and_then(|id| world.messages.get(&id)).map(|message| message.author);
        if self.allowed.is_null() || self.allowed["replied_user"] == true {
            message.mentions.extend(answered);
        }
        message.embeds = self.embeds.unwrap_or_else(|| message.embeds.take());
        message.components = self.components.unwrap_or_else(|| message.components.take());
        message.flags = self.flags.unwrap_or(message.flags);
        if let Some(attachments) = self.attachments {
            message.attachments = attachments;
        }
    }
}

fn has(list: &Value, what: &str) -> bool {
    list.as_array().is_some_and(|list| list.iter().any(|known| known == what))
}

fn check_mentions(allowed: &Value) -> Result<(), FakeApiError> {
    if allowed.is_null() {
        return Ok(());
    }
    check_fields(allowed, "allowed_mentions", &["parse", "roles", "users", "replied_user"])?;
    for kind in allowed["parse"].as_array().into_iter().flatten() {
        if !["roles", "users", "everyone"].iter().any(|known| kind == known) {
            let why = "Value must be one of ('users', 'everyone', 'roles').";
            return Err(invalid_form("allowed_mentions.parse.0", "BASE_TYPE_CHOICES", why));
        }
    }
    for kind in ["roles", "users"] {
        let named = allowed[kind].as_array().is_some_and(|named| !named.is_empty());
        if named && has(&allowed["parse"], kind) {
            let why = format!("parse:[\"{kind}\"] and {kind}: [ids...] are mutually exclusive.");
            return Err(invalid_form("allowed_mentions", "MESSAGE_ALLOWED_MENTIONS_PARSE_EXCLUSIVE", &why));
        }
    }
    Ok(())
}

fn check_embeds(list: &Value) -> Result<(), FakeApiError> {
    let list = list.as_array().ok_or_else(|| {
        invalid_form("embeds", "LIST_TYPE_CONVERT", "Only iterables may be used in a ListType")
    })?;
    if list.len() > 10 {
        return Err(invalid_form("embeds", "BASE_TYPE_MAX_LENGTH", "Must be 10 or fewer in length."));
    }
    for embed in list {
        let known = [
            "title", "type", "description", "url", "timestamp", "color", "footer", "image", "thumbnail",
            "video", "provider", "author", "fields",
        ];
        check_fields(embed, "embeds.0", &known)?;
        for (field, max) in [("title", 256), ("description", 4096)] {
            if !embed[field].is_null() {
                text(embed, field, 0, max)?;
            }
        }
    }
    Ok(())
}

fn check_rows(rows: &Value) -> Result<(), FakeApiError> {
    let wrong = |code: &str, why: &str| invalid_form("components", code, why);
    let rows = rows
        .as_array()
        .ok_or_else(|| wrong("LIST_TYPE_CONVERT", "Only iterables may be used in a ListType"))?;
    if rows.len() > 5 {
        return Err(wrong("BASE_TYPE_BAD_LENGTH", "Must be between 1 and 5 in length."));
    }
    let mut seen = Vec::new();
    for row in rows {
        check_fields(row, "components.0", &["type", "components", "id"])?;
        let inside = row["components"].as_array().filter(|inside| (1..=5).contains(&inside.len()));
        let Some(inside) = inside.filter(|_| row["type"] == 1) else {
            return Err(invalid_form(
                "components.0.components", "BASE_TYPE_BAD_LENGTH", "Must be between 1 and 5 in length.",
            ));
        };
        for component in inside {
            let id = component_id(component)?;
            if id.is_some() && seen.contains(&id) {
                let why = "Component custom id cannot be duplicated";
                return Err(wrong("COMPONENT_CUSTOM_ID_DUPLICATED", why));
            }
            seen.push(id);
        }
    }
    Ok(())
}

/// Validates a button or a menu and returns its id.
fn component_id(component: &Value) -> Result<Option<String>, FakeApiError> {
    let at = "components.0.components.0";
    let own = |component: &Value| text(component, "custom_id", 1, 100).map(|id| Some(id.to_owned()));
    match component["type"].as_u64() {
        Some(2) => {
            let known = ["type", "style", "label", "emoji", "custom_id", "url", "disabled", "sku_id", "id"];
            check_fields(component, at, &known)?;
            if !component["label"].is_null() {
                text(component, "label", 0, 80)?;
            } else if component["emoji"].is_null() {
                return Err(invalid_form(
                    at, "BUTTON_COMPONENT_INVALID_EMOJI_LABEL", "A button needs a label or an emoji",
                ));
            }
            match component["style"].as_u64() {
                Some(1..=4) => own(component),
                Some(5) => text(component, "url", 1, 512).map(|_| None),
                _ => Err(invalid_form(
                    &format!("{at}.style"),
                    "BASE_TYPE_CHOICES",
                    "Value must be one of {1, 2, 3, 4, 5, 6}.",
                )),
            }
        }
        Some(3 | 5..=8) => {
            let known = [
                "type", "custom_id", "options", "channel_types", "placeholder", "default_values",
                "min_values", "max_values", "disabled", "required", "id",
            ];
            check_fields(component, at, &known)?;
            if component["options"].as_array().is_some_and(|options| options.len() > 25) {
                return Err(invalid_form(
                    &format!("{at}.options"),
                    "BASE_TYPE_BAD_LENGTH",
                    "Must be between 1 and 25 in length.",
                ));
            }
            own(component)
        }
        _ => Err(invalid_form(
            &format!("{at}.type"),
            "UNION_TYPE_CHOICES",
            "Value of field \"type\" must be one of (2, 3, 5, 6, 7, 8).",
        )),
    }
}

fn attachments(
    world: &mut World,
    list: &Value,
    files: &[UploadedFile],
    existing: &[FakeAttachment],
) -> Result<Vec<FakeAttachment>, FakeApiError> {
    let known = [
        "id", "filename", "description", "title", "duration_secs", "waveform", "is_spoiler", "size", "url",
        "proxy_url", "content_type", "height", "width", "spoiler", "ephemeral",
    ];
    let mut result = Vec::new();
    let mut listed = Vec::new();
    for entry in list.as_array().into_iter().flatten() {
        check_fields(entry, "attachments.0", &known)?;
        let id = parse_id(&entry["id"]).ok_or_else(|| {
            invalid_form("attachments.0.id", "BASE_TYPE_REQUIRED", "This field is required")
        })?;
        if let Some(old) = existing.iter().find(|old| old.id == id) {
            result.push(old.clone());
            continue;
        }
        let Some(file) = files.iter().find(|file| file.number == id) else {
            return Err(invalid_form(
                "attachments.0.id",
                "ATTACHMENT_NOT_FOUND",
                &format!("Uploaded file {id} not found"),
            ));
        };
        listed.push(id);
        let name = entry["filename"].as_str().unwrap_or(&file.name);
        let description = entry["description"].as_str().map(str::to_owned);
        result.push(uploaded(world, file, name, description));
    }
    for file in files.iter().filter(|file| !listed.contains(&file.number)) {
        result.push(uploaded(world, file, &file.name, None));
    }
    if result.len() > 10 {
        return Err(api_error(30_015));
    }
    if files.iter().any(|file| file.bytes.len() > MAX_FILE_BYTES) {
        return Err(api_error(40_005));
    }
    Ok(result)
}

fn uploaded(
    world: &mut World,
    file: &UploadedFile,
    name: &str,
    description: Option<String>,
) -> FakeAttachment {
    FakeAttachment {
        id: world.next_id(),
        name: name.to_owned(),
        description,
        content_type: file.content_type.clone(),
        size: file.bytes.len() as u64,
        bytes: file.bytes.clone(),
        download: DownloadBehavior::Immediate,
    }
}

/// The message that a new one replies to, or none if it may be missing.
pub(super) fn reference(
    world: &World,
    body: &Value,
    channel: Snowflake,
) -> Result<Option<Snowflake>, FakeApiError> {
    let reference = &body["message_reference"];
    if reference.is_null() {
        return Ok(None);
    }
    check_fields(
        reference,
        "message_reference",
        &["message_id", "channel_id", "guild_id", "fail_if_not_exists", "type"],
    )?;
    let target = parse_id(&reference["message_id"]).and_then(|id| world.messages.get(&id));
    match target.filter(|target| !target.deleted && target.channel == channel) {
        Some(target) if matches!(target.kind, 0 | 19 | 20 | 23) => Ok(Some(target.id)),
        Some(_) => {
            let why = "Cannot reply to a system message";
            Err(invalid_form("message_reference", "REPLIES_CANNOT_REPLY_TO_SYSTEM_MESSAGE", why))
        }
        None if reference["fail_if_not_exists"] == false => Ok(None),
        None => Err(invalid_form("message_reference", "REPLIES_UNKNOWN_MESSAGE", "Unknown message")),
    }
}

/// The message that already has the nonce of a new one.
pub(super) fn nonce(world: &World, call: &ApiCall<'_>) -> Result<Option<Snowflake>, FakeApiError> {
    let nonce = &call.body["nonce"];
    let enforced = call.body["enforce_nonce"] == true;
    match nonce {
        Value::Null if enforced => Err(invalid_form("nonce", "BASE_TYPE_REQUIRED", "This field is required")),
        Value::Null => Ok(None),
        Value::String(_) => {
            text(&call.body, "nonce", 0, 25)?;
            Ok(world.nonces.get(&nonce.to_string()).copied().filter(|_| enforced))
        }
        Value::Number(number) if number.is_i64() || number.is_u64() => {
            Ok(world.nonces.get(&nonce.to_string()).copied().filter(|_| enforced))
        }
        _ => Err(invalid_form("nonce", "BASE_TYPE_CHOICES", "A nonce is a string or a number")),
    }
}
