//! The token that Claude Code keeps for itself. It is never renewed here: that is for its owner to do.

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hermes_types::Secret;
use serde::Deserialize;

use crate::error::{Class, Fault};

/// What goes along with such a token.
pub(crate) const BETA: &str = "oauth-2025-04-20";

/// How such a token begins, wherever it was found.
pub(crate) const TOKEN: &str = "sk-ant-oat";

/// More than any such file has.
const LONGEST: u64 = 1 << 20;

#[derive(Deserialize)]
struct File {
    #[serde(rename = "claudeAiOauth")]
    oauth: Option<Token>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Token {
    access_token: String,
    /// In milliseconds since 1970.
    #[serde(default)]
    expires_at: Option<u64>,
}

/// The token in the file. It is read each time, since Claude Code renews it there.
pub(crate) async fn token(path: &Path) -> Result<Secret, Fault> {
    let fault = |why: String| Fault::new(Class::Auth, format!("{}: {why}", path.display()));
    let metadata = tokio::fs::metadata(path).await.map_err(|error| fault(error.to_string()))?;
    if metadata.len() > LONGEST {
        return Err(fault("this is not a file of Claude Code".to_owned()));
    }
    let text = tokio::fs::read_to_string(path).await.map_err(|error| fault(error.to_string()))?;
    read(&text).map_err(|why| fault(why.to_owned()))
}

/// Whether this text of such a file has a token that can be used now.
pub fn has_token(text: &str) -> bool {
    read(text).is_ok()
}

fn read(text: &str) -> Result<Secret, &'static str> {
    let file: File = serde_json::from_str(text).map_err(|_| "it cannot be read as JSON")?;
    let Some(token) = file.oauth.filter(|token| !token.access_token.is_empty()) else {
        return Err("there is no token in it; `claude` and then `/login` makes one");
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    if token.expires_at.is_some_and(|end| u128::from(end) <= now.as_millis()) {
        return Err("the token has expired; starting `claude` renews it");
    }
    Ok(Secret::new(token.access_token))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_token_is_found_and_never_shown() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("c.json");
        let write = |text: &str| std::fs::write(&path, text).unwrap();
        write(
            r#"{"claudeAiOauth":{"accessToken":"sk-ant-oat01-x","refreshToken":"r","expiresAt":99999999999999,"scopes":["user:inference"]}}"#,
        );
        assert_eq!(token(&path).await.unwrap().expose(), "sk-ant-oat01-x");
        for (text, why) in [
            (r#"{"claudeAiOauth":{"accessToken":"secret","expiresAt":1}}"#, "expired"),
            (r#"{"other":1}"#, "no token"),
            ("{", "JSON"),
        ] {
            write(text);
            let fault = token(&path).await.unwrap_err();
            assert!(fault.class == Class::Auth && fault.message.contains(why), "{fault}");
            assert!(!fault.message.contains("secret"));
        }
    }
}
