//! Requests taken apart, and the refusals of Discord in its own words.

use serde_json::{Value, json};

use super::state::{Snowflake, World};

/// A request that was taken apart.
#[derive(Debug)]
pub(super) struct Call<'a> {
    pub(super) method: &'a str,
    /// The path in steps, without `/api/v10`.
    pub(super) path: Vec<&'a str>,
    pub(super) query: &'a str,
    pub(super) body: Value,
    pub(super) files: Vec<Upload>,
}

/// A file that came with a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Upload {
    /// The number in `files[n]`.
    pub(super) number: u64,
    pub(super) name: String,
    pub(super) content_type: Option<String>,
    pub(super) bytes: Vec<u8>,
}

impl Call<'_> {
    /// The value of a parameter of the query.
    pub(super) fn param(&self, name: &str) -> Option<&str> {
        self.query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))
    }
}

/// Why a request is not done.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Refusal {
    pub(super) status: u16,
    pub(super) code: u64,
    pub(super) body: Value,
    /// Whether it is the client's fault; what a test brought about is not.
    pub(super) fault: bool,
}

/// The status and the body of an answer.
pub(super) type Outcome = Result<(u16, Value), Refusal>;

/// A refusal by its number.
pub(super) fn refuse(code: u64) -> Refusal {
    let (status, message) = match code {
        401 => (401, "401: Unauthorized"),
        404 => (404, "404: Not Found"),
        405 => (405, "405: Method Not Allowed"),
        10_003 => (404, "Unknown Channel"),
        10_004 => (404, "Unknown Guild"),
        10_008 => (404, "Unknown Message"),
        10_013 => (404, "Unknown User"),
        10_014 => (400, "Unknown Emoji"),
        10_015 => (404, "Unknown Webhook"),
        10_062 => (404, "Unknown interaction"),
        10_063 => (404, "Unknown application command"),
        20_012 => (403, "You are not authorized to perform this action on this application"),
        30_015 => (400, "Maximum number of attachments in a message reached (10)"),
        40_005 => (413, "Request entity too large"),
        40_067 => (400, "A tag is required to create a forum post in this channel"),
        40_060 => (400, "Interaction has already been acknowledged."),
        50_003 => (403, "Cannot execute action on a DM channel"),
        50_005 => (403, "Cannot edit a message authored by another user"),
        50_006 => (400, "Cannot send an empty message"),
        50_008 => (400, "Cannot send messages in a non-text channel"),
        50_013 => (403, "Missing Permissions"),
        50_024 => (400, "Cannot execute action on this channel type"),
        50_083 => (400, "Tried to perform an operation on an archived thread"),
        50_109 => (400, "The request body contains invalid JSON."),
        160_004 => (400, "A thread has already been created for this message"),
        _ => (400, "General error"),
    };
    // Refusals that are only a status have the code 0 in their body.
    let told = if code < 1000 { 0 } else { code };
    Refusal { status, code, body: json!({"message": message, "code": told}), fault: true }
}

/// An invalid form body: what is wrong with which field.
pub(super) fn invalid(field: &str, code: &str, message: &str) -> Refusal {
    let mut errors = json!({"_errors": [{"code": code, "message": message}]});
    for step in field.split('.').rev() {
        errors = json!({step: errors});
    }
    let body = json!({"message": "Invalid Form Body", "code": 50_035, "errors": errors});
    Refusal { status: 400, code: 50_035, body, fault: true }
}

/// Every field of a body must be one that Discord knows.
pub(super) fn only(body: &Value, at: &str, known: &[&str]) -> Result<(), Refusal> {
    let Some(fields) = body.as_object() else {
        return Err(invalid(at, "MODEL_TYPE_CONVERT", "Only dictionaries may be used in a ModelType"));
    };
    match fields.keys().find(|field| !known.contains(&field.as_str())) {
        Some(field) => Err(invalid(&format!("{at}.{field}"), "UNKNOWN_FIELD", "This field is not known")),
        None => Ok(()),
    }
}

/// A text of a body within its bounds, counted in characters.
pub(super) fn text<'a>(body: &'a Value, field: &str, least: usize, most: usize) -> Result<&'a str, Refusal> {
    let value = &body[field];
    let Some(text) = value.as_str() else {
        let required = value.is_null();
        return Err(match required {
            true => invalid(field, "BASE_TYPE_REQUIRED", "This field is required"),
            false => {
                invalid(field, "STRING_TYPE_CONVERT", &format!("Could not interpret \"{value}\" as string."))
            }
        });
    };
    let length = text.chars().count();
    match length {
        _ if length > most => {
            let why = format!("Must be {most} or fewer in length.");
            Err(invalid(field, "BASE_TYPE_MAX_LENGTH", &why))
        }
        _ if length < least => {
            let why = format!("Must be between {least} and {most} in length.");
            Err(invalid(field, "BASE_TYPE_BAD_LENGTH", &why))
        }
        _ => Ok(text),
    }
}

/// An id of a path or a body.
pub(super) fn snowflake(text: &str) -> Result<Snowflake, Refusal> {
    let wrong = || invalid("id", "NUMBER_TYPE_COERCE", &format!("Value \"{text}\" is not snowflake."));
    text.parse().map_err(|_| wrong())
}

/// An id in a body: text, or a number.
pub(super) fn id_in(value: &Value) -> Option<Snowflake> {
    value.as_u64().or_else(|| value.as_str()?.parse().ok())
}

/// Takes the parts of a form apart: what is in `payload_json`, and the files.
pub(super) fn multipart(body: &[u8], boundary: &str) -> Option<(Value, Vec<Upload>)> {
    let mark = format!("--{boundary}");
    let (mut payload, mut files) = (Value::Null, Vec::new());
    let mut rest = body;
    let (_, after) = cut(rest, mark.as_bytes())?;
    rest = after;
    let end = format!("\r\n{mark}");
    while !rest.starts_with(b"--") {
        let (part, after) = cut(rest, end.as_bytes())?;
        rest = after;
        let (head, content) = cut(part, b"\r\n\r\n")?;
        let head = String::from_utf8_lossy(head);
        let header = |name: &str| {
            head.lines().find_map(|line| {
                let (known, value) = line.split_once(':')?;
                known.eq_ignore_ascii_case(name).then(|| value.trim().to_owned())
            })
        };
        let disposition = header("content-disposition")?;
        let value = |name: &str| {
            let parts = disposition.split("; ");
            parts
                .filter_map(|part| part.strip_prefix(name))
                .next()
                .map(|value| value.trim_matches('"').to_owned())
        };
        let name = value("name=")?;
        if name == "payload_json" {
            payload = serde_json::from_slice(content).ok()?;
            continue;
        }
        let number = name.strip_prefix("files[")?.strip_suffix(']')?.parse().ok()?;
        let content_type = header("content-type");
        files.push(Upload { number, name: value("filename=")?, content_type, bytes: content.to_vec() });
    }
    Some((payload, files))
}

/// What is before and after the first place of a mark.
fn cut<'a>(bytes: &'a [u8], mark: &[u8]) -> Option<(&'a [u8], &'a [u8])> {
    let place = bytes.windows(mark.len()).position(|window| window == mark)?;
    Some((bytes.get(..place)?, bytes.get(place + mark.len()..)?))
}

/// A step of a path as it was before it was quoted.
pub(super) fn unquoted(step: &str) -> String {
    let mut bytes = Vec::new();
    let mut left = step.bytes();
    while let Some(byte) = left.next() {
        let hex =
            |digit: Option<u8>| char::from(digit?).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        match byte {
            b'%' => match (hex(left.next()), hex(left.next())) {
                (Some(high), Some(low)) => bytes.push(high * 16 + low),
                _ => bytes.push(b'%'),
            },
            _ => bytes.push(byte),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The application in a path must be the bot's own.
pub(super) fn own(world: &World, application: &str) -> Result<(), Refusal> {
    if application.parse() == Ok(world.bot) { Ok(()) } else { Err(refuse(20_012)) }
}
