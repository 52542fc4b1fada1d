//! Who the owner is to a registry, as `docker login` wrote it down.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hermes_exec::backend::docker::pull::RegistryCredentials;
use hermes_types::Secret;
use serde_json::Value;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;
use tokio::time::timeout;

/// What Docker Hub is called in the file.
const HUB: &str = "https://index.docker.io/v1/";
/// How long a program with secrets may take; it may ask its owner.
const PATIENCE: Duration = Duration::from_secs(60);
/// Who has such a name has a token instead of a password.
const TOKEN: &str = "<token>";

/// The credentials for a registry, if there are any. What is wrong with them is said in words.
pub(super) async fn credentials(directory: &Path, host: &str) -> Result<Option<RegistryCredentials>, String> {
    let path = directory.join("config.json");
    let wrong = |what: &str| format!("{}: {what}", path.display());
    let text = match std::fs::read(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        text => text.map_err(|error| wrong(&error.to_string()))?,
    };
    // What is in there is not shown, not even the part that cannot be read.
    let file: Value = serde_json::from_slice(&text).map_err(|_error| wrong("it is no JSON"))?;
    let server = if host == "docker.io" { HUB } else { host };
    let own = file.get("credHelpers").and_then(|helpers| helpers.get(server)?.as_str());
    let common = || file.get("credsStore").and_then(Value::as_str);
    if let Some(helper) = own.or_else(common).filter(|helper| !helper.is_empty()) {
        return ask(helper, server).await;
    }
    let listed = file.get("auths").and_then(Value::as_object);
    let found = listed.and_then(|auths| {
        let same = |name: &str| name == server || bare(name) == server;
        auths.iter().find_map(|(name, entry)| same(name).then_some(entry))
    });
    match found {
        Some(entry) => read(entry).map_err(|what| wrong(&format!("auths of {server}: {what}"))),
        None => Ok(None),
    }
}

/// The host of an older entry, which has a scheme and a path.
fn bare(name: &str) -> &str {
    let rest = name.split_once("://").map_or(name, |(_, rest)| rest);
    rest.split('/').next().unwrap_or(rest)
}

fn read(entry: &Value) -> Result<Option<RegistryCredentials>, &'static str> {
    let text = |name: &str| entry.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
    if let Some(token) = text("identitytoken") {
        return Ok(Some(RegistryCredentials::Token(Secret::new(token))));
    }
    let Some(auth) = text("auth") else { return Ok(None) };
    let bytes = STANDARD.decode(auth).map_err(|_error| "auth is no Base64")?;
    let pair = String::from_utf8(bytes).map_err(|_error| "auth is no text")?;
    let (user, password) = pair.split_once(':').ok_or("auth has no colon")?;
    Ok(Some(RegistryCredentials::Password { user: user.to_owned(), password: Secret::new(password) }))
}

/// Asks the program that keeps the secrets.
async fn ask(helper: &str, server: &str) -> Result<Option<RegistryCredentials>, String> {
    let program = format!("docker-credential-{helper}");
    let wrong = |what: &str| format!("{program}: {what}");
    let talk = async {
        let mut child = Command::new(&program)
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
    let output = timeout(PATIENCE, talk)
        .await
        .map_err(|_elapsed| wrong("it did not answer"))?
        .map_err(|error| wrong(&error.to_string()))?;
    if !output.status.success() {
        // This is how it says that it has none.
        let said = String::from_utf8_lossy(&output.stdout);
        let none = said.contains("credentials not found");
        return if none { Ok(None) } else { Err(wrong(said.trim())) };
    }
    let answer: Value = serde_json::from_slice(&output.stdout).map_err(|_error| wrong("it gave no JSON"))?;
    let text = |name: &str| answer.get(name).and_then(Value::as_str).unwrap_or_default();
    let secret = Secret::new(text("Secret"));
    Ok(Some(match text("Username") {
        TOKEN => RegistryCredentials::Token(secret),
        user => RegistryCredentials::Password { user: user.to_owned(), password: secret },
    }))
}

/// Where the file is.
pub(super) fn directory(chosen: Option<&str>, home: &str) -> PathBuf {
    chosen.map_or_else(|| Path::new(home).join(".docker"), PathBuf::from)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn found(file: &str, host: &str) -> Result<Option<RegistryCredentials>, String> {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("config.json"), file).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(credentials(directory.path(), host))
    }

    #[test]
    fn what_docker_login_wrote_is_found_by_its_host_alone() {
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
        for (host, wanted) in cases {
            assert_eq!(found(&file, host), Ok(wanted), "{host}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_said_without_showing_it() {
        let broken = json!({"auths": {"r.example": {"auth": "c2VjcmV0"}}}).to_string();
        for (file, word) in [("{\"auths\": hunter2", "no JSON"), (broken.as_str(), "no colon")] {
            let said = found(file, "r.example").unwrap_err();
            assert!(said.contains(word) && !said.contains("hunter2") && !said.contains("secret"), "{said}");
        }
        let missing = found("{\"credsStore\": \"of-nobody\"}", "r.example").unwrap_err();
        assert!(missing.contains("docker-credential-of-nobody"), "{missing}");
    }
}
