//! Pictures in requests: what vendors refuse, and the bytes of those that came.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hermes_types::ImageKind;
use serde_json::Value;

/// What Anthropic takes of one picture, in base64.
const MAX_ANTHROPIC_BASE64_BYTES: usize = 5 << 20;

/// A picture as it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SentImage {
    /// What the request says it is.
    pub media_type: String,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// All pictures of a request, by whatever protocol, in their order.
pub(super) fn all(request: &Value) -> Vec<SentImage> {
    let said = ["messages", "input"].iter().find_map(|name| request[*name].as_array());
    let parts = said.into_iter().flatten().filter_map(|message| message["content"].as_array()).flatten();
    parts
        .filter_map(|part| of_chat(part).or_else(|_| of_anthropic(part)).or_else(|_| of_responses(part)).ok())
        .collect()
}

/// A part of a message of Chat Completions.
pub(super) fn of_chat(part: &Value) -> Result<SentImage, String> {
    fields(part, &["type", "image_url"])?;
    fields(&part["image_url"], &["url", "detail"])?;
    match part["type"].as_str() {
        Some("image_url") => in_url(&part["image_url"]["url"]),
        _ => Err(format!("Invalid value: {part}")),
    }
}

/// A block of a message of Anthropic.
pub(super) fn of_anthropic(block: &Value) -> Result<SentImage, String> {
    fields(block, &["type", "source", "cache_control"])?;
    let source = &block["source"];
    fields(source, &["type", "media_type", "data"])?;
    let (kind, data) = (source["media_type"].as_str(), source["data"].as_str());
    match (block["type"].as_str(), source["type"].as_str(), kind, data) {
        (Some("image"), Some("base64"), Some(_), Some(data)) if data.len() > MAX_ANTHROPIC_BASE64_BYTES => {
            Err(format!(
                "image exceeds 5 MB maximum: {} bytes > {MAX_ANTHROPIC_BASE64_BYTES} bytes",
                data.len()
            ))
        }
        (Some("image"), Some("base64"), Some(kind), Some(data)) => decoded(kind, data),
        _ => Err(format!("unexpected block {block}")),
    }
}

/// A part of a message of Responses.
pub(super) fn of_responses(part: &Value) -> Result<SentImage, String> {
    fields(part, &["type", "image_url", "detail"])?;
    match (part["type"].as_str(), part["detail"].as_str()) {
        (Some("input_image"), Some("auto" | "low" | "high")) => in_url(&part["image_url"]),
        _ => Err(format!("Invalid value: {part}")),
    }
}

fn fields(value: &Value, known: &[&str]) -> Result<(), String> {
    let object = value.as_object().ok_or_else(|| format!("Invalid type: {value}"))?;
    match object.keys().find(|key| !known.contains(&key.as_str())) {
        Some(key) => Err(format!("Unknown parameter: '{key}'.")),
        None => Ok(()),
    }
}

fn in_url(url: &Value) -> Result<SentImage, String> {
    let url = url.as_str().and_then(|url| url.strip_prefix("data:"));
    let (kind, data) = url.and_then(|url| url.split_once(";base64,")).ok_or("Invalid image URL.")?;
    decoded(kind, data)
}

fn decoded(media_type: &str, data: &str) -> Result<SentImage, String> {
    let bytes = STANDARD.decode(data).map_err(|error| format!("Invalid base64 image data: {error}"))?;
    match ImageKind::detect(&bytes).map(ImageKind::media_type) {
        Some(kind) if kind == media_type => Ok(SentImage { media_type: media_type.to_owned(), bytes }),
        found => Err(format!("The image was specified as {media_type}, but appears to be {found:?}")),
    }
}
