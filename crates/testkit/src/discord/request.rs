//! Parsed requests, and the errors of the API in Discord's words.

use serde_json::{Value, json};

use super::state::{Snowflake, World};

/// A parsed request.
#[derive(Debug)]
pub(super) struct ApiCall<'a> {
    pub(super) method: &'a str,
    /// The segments of the path, without `/api/v10`.
    pub(super) path: Vec<&'a str>,
    pub(super) query: &'a str,
    pub(super) body: Value,
    pub(super) files: Vec<UploadedFile>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct UploadedFile {
    /// The number in `files[n]`.
    pub(super) number: u64,
    pub(super) name: String,
    pub(super) content_type: Option<String>,
    pub(super) bytes: Vec<u8>,
}

impl ApiCall<'_> {
    pub(super) fn param(&self, name: &str) -> Option<&str> {
        self.query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))
    }
}

/// An error response.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct FakeApiError {
    pub(super) status: u16,
    pub(super) code: u64,
    pub(super) body: Value,
    /// False if the test caused it.
    pub(super) is_violation: bool,
}

/// The status and the body of a response.
pub(super) type ApiResult = Result<(u16, Value), FakeApiError>;

/// The error with this code.
pub(super) fn api_error(code: u64) -> FakeApiError {
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
    // Errors that are only a status have the code 0 in their body.
    let body_code = if code < 1000 { 0 } else { code };
    FakeApiError { status, code, body: json!({"message": message, "code": body_code}), is_violation: true }
}

/// The error for an invalid field of a body.
pub(super) fn invalid_form(field: &str, code: &str, message: &str) -> FakeApiError {
    let mut errors = json!({"_errors": [{"code": code, "message": message}]});
    for step in field.split('.').rev() {
        errors = json!({step: errors});
    }
    let body = json!({"message": "Invalid Form Body", "code": 50_035, "errors": errors});
    FakeApiError { status: 400, code: 50_035, body, is_violation: true }
}

/// Rejects fields that Discord does not know.
pub(super) fn check_fields(body: &Value, at: &str, known: &[&str]) -> Result<(), FakeApiError> {
    let Some(fields) = body.as_object() else {
        return Err(invalid_form(at, "MODEL_TYPE_CONVERT", "Only dictionaries may be used in a ModelType"));
    };
    match fields.keys().find(|field| !known.contains(&field.as_str())) {
        Some(field) => {
            Err(invalid_form(&format!("{at}.{field}"), "UNKNOWN_FIELD", "This field is not known"))
        }
        None => Ok(()),
    }
}

/// A text field whose length, in characters, is within these limits.
pub(super) fn text<'a>(
    body: &'a Value,
    field: &str,
    min: usize,
    max: usize,
) -> Result<&'a str, FakeApiError> {
    let value = &body[field];
    let Some(text) = value.as_str() else {
        if value.is_null() {
            return Err(invalid_form(field, "BASE_TYPE_REQUIRED", "This field is required"));
        }
        let message = format!("Could not interpret \"{value}\" as string.");
        return Err(invalid_form(field, "STRING_TYPE_CONVERT", &message));
    };
    let length = text.chars().count();
    match length {
        _ if length > max => {
            let why = format!("Must be {max} or fewer in length.");
            Err(invalid_form(field, "BASE_TYPE_MAX_LENGTH", &why))
        }
        _ if length < min => {
            let why = format!("Must be between {min} and {max} in length.");
            Err(invalid_form(field, "BASE_TYPE_BAD_LENGTH", &why))
        }
        _ => Ok(text),
    }
}

/// Parses an id of a path.
pub(super) fn snowflake(text: &str) -> Result<Snowflake, FakeApiError> {
    let wrong = || invalid_form("id", "NUMBER_TYPE_COERCE", &format!("Value \"{text}\" is not snowflake."));
    text.parse().map_err(|_| wrong())
}

/// Parses an id of a body: a string or a number.
pub(super) fn parse_id(value: &Value) -> Option<Snowflake> {
    value.as_u64().or_else(|| value.as_str()?.parse().ok())
}

/// Parses a multipart body into `payload_json` and the files.
pub(super) fn parse_multipart(body: &[u8], boundary: &str) -> Option<(Value, Vec<UploadedFile>)> {
    let mark = format!("--{boundary}");
    let (mut payload, mut files) = (Value::Null, Vec::new());
    let mut rest = body;
    let (_, after) = split_once(rest, mark.as_bytes())?;
    rest = after;
    let end = format!("\r\n{mark}");
    while !rest.starts_with(b"--") {
        let (part, after) = split_once(rest, end.as_bytes())?;
        rest = after;
        let (head, content) = split_once(part, b"\r\n\r\n")?;
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
        files.push(UploadedFile { number, name: value("filename=")?, content_type, bytes: content.to_vec() });
    }
    Some((payload, files))
}

/// The bytes before and after the first occurrence of a mark.
fn split_once<'a>(bytes: &'a [u8], mark: &[u8]) -> Option<(&'a [u8], &'a [u8])> {
    let at = bytes.windows(mark.len()).position(|window| window == mark)?;
    Some((bytes.get(..at)?, bytes.get(at + mark.len()..)?))
}

/// Decodes a segment of a path.
pub(super) fn percent_decode(segment: &str) -> String {
    let mut bytes = Vec::new();
    let mut left = segment.bytes();
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

/// Checks that the application in a path is the bot's own.
pub(super) fn check_application(world: &World, application: &str) -> Result<(), FakeApiError> {
    if application.parse() == Ok(world.bot) { Ok(()) } else { Err(api_error(20_012)) }
}
