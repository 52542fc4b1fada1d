//! Registry credentials as `docker login` stores them.

use std::io;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hermes_types::Secret;
use serde_json::Value;
use thiserror::Error;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;
use tokio::time::timeout;

use super::pull::RegistryCredentials;

/// The name of Docker Hub in the file.
const HUB: &str = "https://index.docker.io/v1/";
/// A credential helper may have to ask its user.
const HELPER_TIMEOUT: Duration = Duration::from_secs(60);
/// The user name of an entry that holds an identity token.
const TOKEN_USER: &str = "<token>";

/// A credential store that cannot be used. The message never shows its content.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{origin}: {problem}")]
pub struct CredentialsError {
    /// The file or program that holds the credentials.
    origin: String,
    problem: String,
}

impl CredentialsError {
    /// The warning about a pull without credentials.
    pub fn warning(&self) -> String {
        format!("pulling without registry credentials: {self}")
    }
}

/// Finds the credentials for a registry in Docker's settings directory.
pub async fn find_credentials(
    directory: &Path,
    registry: &str,
) -> Result<Option<RegistryCredentials>, CredentialsError> {
    let path = directory.join("config.json");
    let invalid = |problem| CredentialsError { origin: path.display().to_string(), problem };
    let text = match std::fs::read(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        text => text.map_err(|error| invalid(error.to_string()))?,
    };
    let file: Value = serde_json::from_slice(&text).map_err(|_secret| invalid("invalid JSON".to_owned()))?;
    let server = if registry == "docker.io" { HUB } else { registry };
    let own = file.get("credHelpers").and_then(|helpers| helpers.get(server)?.as_str());
    let common = || file.get("credsStore").and_then(Value::as_str);
    if let Some(helper) = own.or_else(common).filter(|helper| !helper.is_empty()) {
        return ask_helper(helper, server).await;
    }
    let entries = file.get("auths").and_then(Value::as_object);
    let found = entries.and_then(|entries| {
        let matches = |name: &str| name == server || host_of(name) == server;
        entries.iter().find_map(|(name, entry)| matches(name).then_some(entry))
    });
    let Some(entry) = found else { return Ok(None) };
    parse_entry(entry).map_err(|problem| invalid(format!("auths of {server}: {problem}")))
}

/// The host of an older entry, which has a scheme and a path.
fn host_of(name: &str) -> &str {
    let rest = name.split_once("://").map_or(name, |(_, rest)| rest);
    rest.split('/').next().unwrap_or(rest)
}

fn parse_entry(entry: &Value) -> Result<Option<RegistryCredentials>, &'static str> {
    let text = |name: &str| entry.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
    if let Some(token) = text("identitytoken") {
        return Ok(Some(RegistryCredentials::Token(Secret::new(token))));
    }
    let Some(auth) = text("auth") else { return Ok(None) };
    let bytes = STANDARD.decode(auth).map_err(|_secret| "auth is not Base64")?;
    let pair = String::from_utf8(bytes).map_err(|_secret| "auth is not UTF-8")?;
    let (user, password) = pair.split_once(':').ok_or("auth has no colon")?;
    Ok(Some(RegistryCredentials::Password { user: user.to_owned(), password: Secret::new(password) }))
}

/// Runs a credential helper program.
async fn ask_helper(helper: &str, server: &str) -> Result<Option<RegistryCredentials>, CredentialsError> {
    let program = format!("docker-credential-{helper}");
    let failed = |problem| CredentialsError { origin: program.clone(), problem };
    #[expect(clippy::disallowed_methods, reason = "Docker's settings name this program")]
    let mut command = Command::from(std::process::Command::new(&program));
    let run = async {
        let mut child = command
            .arg("get")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()?;
        if let Some(mut input) = child.stdin.take() {
            input.write_all(server.as_bytes()).await?;
        }
        child.wait_with_output().await
    };
    let output = timeout(HELPER_TIMEOUT, run)
        .await
        .map_err(|_elapsed| failed("no response".to_owned()))?
        .map_err(|error| failed(error.to_string()))?;
    if !output.status.success() {
        let message = String::from_utf8_lossy(&output.stdout);
        let is_missing = message.contains("credentials not found");
        return if is_missing { Ok(None) } else { Err(failed(message.trim().to_owned())) };
    }
    let answer: Value =
        serde_json::from_slice(&output.stdout).map_err(|_secret| failed("invalid JSON".to_owned()))?;
    let text = |name: &str| answer.get(name).and_then(Value::as_str).unwrap_or_default();
    let secret = Secret::new(text("Secret"));
    Ok(Some(match text("Username") {
        TOKEN_USER => RegistryCredentials::Token(secret),
        user => RegistryCredentials::Password { user: user.to_owned(), password: secret },
    }))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn find(file: &str, host: &str) -> Result<Option<RegistryCredentials>, CredentialsError> {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("config.json"), file).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(find_credentials(directory.path(), host))
    }

    #[test]
    fn an_entry_of_docker_login_is_found_by_its_host() {
        let entry = |pair: &str| json!({"auth": STANDARD.encode(pair)});
        let file = json!({"auths": {
            HUB: entry("hub:1"),
            "r.example:5000": entry("me:a:b"),
            "https://old.example/v2/": entry("old:2"),
            "t.example": {"identitytoken": "tok", "auth": STANDARD.encode("x:")},
            "empty.example": {},
        }})
        .to_string();
        let password = |user: &str, password: &str| {
            Some(RegistryCredentials::Password { user: user.to_owned(), password: Secret::new(password) })
        };
        let cases = [
            ("docker.io", password("hub", "1")),
            ("r.example:5000", password("me", "a:b")),
            ("r.example", None),
            ("old.example", password("old", "2")),
            ("index.docker.io", password("hub", "1")),
            ("t.example", Some(RegistryCredentials::Token(Secret::new("tok")))),
            ("empty.example", None),
        ];
        for (host, expected) in cases {
            assert_eq!(find(&file, host), Ok(expected), "{host}");
        }
    }

    #[test]
    fn an_unreadable_entry_is_reported_without_its_content() {
        let broken = json!({"auths": {"r.example": {"auth": "c2VjcmV0"}}}).to_string();
        for (file, word) in [("{\"auths\": hunter2", "invalid JSON"), (broken.as_str(), "no colon")] {
            let message = find(file, "r.example").unwrap_err().to_string();
            let is_secret = message.contains("hunter2") || message.contains("secret");
            assert!(message.contains(word) && !is_secret, "{message}");
        }
        let missing = find("{\"credsStore\": \"of-no-one\"}", "r.example").unwrap_err().to_string();
        assert!(missing.contains("docker-credential-of-no-one"), "{missing}");
    }
}
