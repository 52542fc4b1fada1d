//! Images in requests: the vendors' checks, and the received bytes.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hermes_types::ImageKind;
use serde_json::Value;

const MAX_ANTHROPIC_BASE64_BYTES: usize = 5 << 20;

/// An image of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SentImage {
    pub media_type: String,
    pub bytes: Vec<u8>,
}

/// All images of a request in their order, by any protocol.
pub(super) fn find_all(request: &Value) -> Vec<SentImage> {
    let messages = ["messages", "input"].iter().find_map(|name| request[*name].as_array());
    let parts = messages.into_iter().flatten().filter_map(|message| message["content"].as_array()).flatten();
    parts
        .filter_map(|part| {
            from_chat(part).or_else(|_| from_anthropic(part)).or_else(|_| from_responses(part)).ok()
        })
        .collect()
}

/// Decodes a part of Chat Completions.
pub(super) fn from_chat(part: &Value) -> Result<SentImage, String> {
    check_fields(part, &["type", "image_url"])?;
    check_fields(&part["image_url"], &["url", "detail"])?;
    match part["type"].as_str() {
        Some("image_url") => decode_url(&part["image_url"]["url"]),
        _ => Err(format!("Invalid value: {part}")),
    }
}

/// Decodes a block of Anthropic's Messages.
pub(super) fn from_anthropic(block: &Value) -> Result<SentImage, String> {
    check_fields(block, &["type", "source", "cache_control"])?;
    let source = &block["source"];
    check_fields(source, &["type", "media_type", "data"])?;
    let (kind, data) = (source["media_type"].as_str(), source["data"].as_str());
    match (block["type"].as_str(), source["type"].as_str(), kind, data) {
        (Some("image"), Some("base64"), Some(_), Some(data)) if data.len() > MAX_ANTHROPIC_BASE64_BYTES => {
            Err(format!(
                "image exceeds 5 MB maximum: {} bytes > {MAX_ANTHROPIC_BASE64_BYTES} bytes",
                data.len()
            ))
        }
        (Some("image"), Some("base64"), Some(kind), Some(data)) => decode(kind, data),
        _ => Err(format!("unexpected block {block}")),
    }
}

/// Decodes a part of Responses.
pub(super) fn from_responses(part: &Value) -> Result<SentImage, String> {
    check_fields(part, &["type", "image_url", "detail"])?;
    match (part["type"].as_str(), part["detail"].as_str()) {
        (Some("input_image"), Some("auto" | "low" | "high")) => decode_url(&part["image_url"]),
        _ => Err(format!("Invalid value: {part}")),
    }
}

fn check_fields(value: &Value, known: &[&str]) -> Result<(), String> {
    let object = value.as_object().ok_or_else(|| format!("Invalid type: {value}"))?;
    match object.keys().find(|key| !known.contains(&key.as_str())) {
        Some(key) => Err(format!("Unknown parameter: '{key}'.")),
        None => Ok(()),
    }
}

fn decode_url(url: &Value) -> Result<SentImage, String> {
    let url = url.as_str().and_then(|url| url.strip_prefix("data:"));
    let (kind, data) = url.and_then(|url| url.split_once(";base64,")).ok_or("Invalid image URL.")?;
    decode(kind, data)
}

fn decode(media_type: &str, data: &str) -> Result<SentImage, String> {
    let bytes = STANDARD.decode(data).map_err(|error| format!("Invalid base64 image data: {error}"))?;
    match ImageKind::detect(&bytes).map(ImageKind::media_type) {
        Some(kind) if kind == media_type => Ok(SentImage { media_type: media_type.to_owned(), bytes }),
        found => Err(format!("The image was specified as {media_type}, but appears to be {found:?}")),
    }
}
