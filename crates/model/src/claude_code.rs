//! The OAuth token that Claude Code stores for itself. Only Claude Code renews it.

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hermes_types::Secret;
use serde::Deserialize;

use crate::error::{FailureClass, RequestFailure};

/// The value of `anthropic-beta` that such a token needs.
pub(crate) const OAUTH_BETA: &str = "oauth-2025-04-20";

/// The prefix of such a token in any source.
pub(crate) const TOKEN_PREFIX: &str = "sk-ant-oat";

const MAX_FILE_BYTES: u64 = 1 << 20;

#[derive(Deserialize)]
struct CredentialsFile {
    #[serde(rename = "claudeAiOauth")]
    oauth: Option<OauthToken>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct OauthToken {
    access_token: String,
    /// In milliseconds since 1970.
    expires_at: Option<u64>,
}

/// Reads the token from the file. It is read each time, because Claude Code renews it there.
pub(crate) async fn read_token(path: &Path) -> Result<Secret, RequestFailure> {
    let failure = |reason: String| {
        RequestFailure::new(FailureClass::Auth, format!("cannot read {}: {reason}", path.display()))
    };
    let metadata = tokio::fs::metadata(path).await.map_err(|error| failure(error.to_string()))?;
    if metadata.len() > MAX_FILE_BYTES {
        return Err(failure("not a credentials file of Claude Code".to_owned()));
    }
    let text = tokio::fs::read_to_string(path).await.map_err(|error| failure(error.to_string()))?;
    parse_token(&text).map_err(|reason| failure(reason.to_owned()))
}

/// Whether the text of a credentials file has a valid token.
pub fn has_token(text: &str) -> bool {
    parse_token(text).is_ok()
}

fn parse_token(text: &str) -> Result<Secret, &'static str> {
    let file: CredentialsFile = serde_json::from_str(text).map_err(|_| "invalid JSON")?;
    let Some(token) = file.oauth.filter(|token| !token.access_token.is_empty()) else {
        return Err("it has no token. Run `claude` and then `/login`.");
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    if token.expires_at.is_some_and(|end| u128::from(end) <= now.as_millis()) {
        return Err("the token has expired. Start `claude` to renew it.");
    }
    Ok(Secret::new(token.access_token))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_token_is_read_and_never_shown() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("c.json");
        let write = |text: &str| std::fs::write(&path, text).unwrap();
        write(
            r#"{"claudeAiOauth":{"accessToken":"sk-ant-oat01-x","refreshToken":"r","expiresAt":99999999999999,"scopes":["user:inference"]}}"#,
        );
        assert_eq!(read_token(&path).await.unwrap().expose(), "sk-ant-oat01-x");
        for (text, reason) in [
            (r#"{"claudeAiOauth":{"accessToken":"secret","expiresAt":1}}"#, "expired"),
            (r#"{"other":1}"#, "no token"),
            ("{", "JSON"),
        ] {
            write(text);
            let failure = read_token(&path).await.unwrap_err();
            assert!(failure.class == FailureClass::Auth && failure.message.contains(reason), "{failure}");
            assert!(!failure.message.contains("secret"));
        }
    }
}
