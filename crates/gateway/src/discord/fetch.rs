//! Files that came with letters.

use std::path::Path;
use std::time::Duration;

use reqwest::Url;
use tokio::fs::OpenOptions;
use tokio::io::AsyncWriteExt as _;

use super::Account;
use crate::channel::Unfetched;
use crate::letter::Attachment;

/// The hosts Discord keeps files at.
const HOSTS: [&str; 2] = ["cdn.discordapp.com", "media.discordapp.net"];
/// The longest between two pieces of a file.
const QUIET: Duration = Duration::from_secs(30);
/// The longest a file takes.
const LONGEST: Duration = Duration::from_secs(600);

impl Account {
    /// Fetches a file.
    pub(super) async fn fetch(&self, file: &Attachment, into: &Path, most: u64) -> Result<u64, Unfetched> {
        let most = match self.settings.max_attachment_bytes {
            0 => most,
            chosen => most.min(chosen),
        };
        if file.size > most {
            return Err(Unfetched::TooLarge(most));
        }
        let url = self.address(&file.source)?;
        let fetched = tokio::time::timeout(LONGEST, self.stream(url, into, most)).await;
        fetched.unwrap_or_else(|_| Err(Unfetched::Failed("it takes too long".to_owned())))
    }

    /// Where a file is, if that is a place of the platform.
    fn address(&self, source: &str) -> Result<Url, Unfetched> {
        let failed = |why: &str| Unfetched::Failed(why.to_owned());
        let url = Url::parse(source).map_err(|_| failed("its address is not one"))?;
        let host = url.host_str().unwrap_or_default();
        let is_discord = url.scheme() == "https" && url.port().is_none() && HOSTS.contains(&host);
        let is_ours = self.settings.api_base.is_some() && self.rest.is_at(&url);
        match is_discord || is_ours {
            true => Ok(url),
            false => Err(failed("it is not kept by Discord")),
        }
    }

    async fn stream(&self, url: Url, into: &Path, most: u64) -> Result<u64, Unfetched> {
        let broke = |error: reqwest::Error| Unfetched::Failed(self.rest.broken_plainly(error));
        let unkept = |error: std::io::Error| Unfetched::Failed(format!("it cannot be kept: {error}"));
        let slow = |_| Unfetched::Failed("it comes too slowly".to_owned());
        let client = self.rest.client().map_err(Unfetched::Failed)?;
        let response = tokio::time::timeout(QUIET, client.get(url).send()).await.map_err(slow)?;
        let mut response = response.and_then(reqwest::Response::error_for_status).map_err(broke)?;
        if response.content_length().is_some_and(|length| length > most) {
            return Err(Unfetched::TooLarge(most));
        }
        // It is not made here: nobody would remove it if it were made a moment after nobody waits for it any more.
        let mut kept = OpenOptions::new().write(true).truncate(true).open(into).await.map_err(unkept)?;
        let mut size = 0u64;
        while let Some(piece) =
            tokio::time::timeout(QUIET, response.chunk()).await.map_err(slow)?.map_err(broke)?
        {
            size = size.saturating_add(piece.len() as u64);
            if size > most {
                return Err(Unfetched::TooLarge(most));
            }
            kept.write_all(&piece).await.map_err(unkept)?;
        }
        kept.flush().await.map_err(unkept)?;
        Ok(size)
    }
}

#[cfg(test)]
mod tests {
    use hermes_types::Secret;

    use crate::discord::{Discord, Past, Settings};

    #[test]
    fn only_files_of_the_platform_are_fetched() {
        let plain = Settings::new(Secret::new("token"));
        let local = Settings { api_base: Some("http://127.0.0.1:8080/api/v10".to_owned()), ..plain.clone() };
        let (real, test) = (Discord::new(plain, Past::default()), Discord::new(local, Past::default()));
        let cases = [
            ("https://cdn.discordapp.com/attachments/1/2/a.png?ex=1", true, true),
            ("https://media.discordapp.net/attachments/1/2/a.png", true, true),
            ("http://cdn.discordapp.com/a.png", false, false),
            ("https://cdn.discordapp.com:8443/a.png", false, false),
            ("https://cdn.discordapp.com.example.org/a.png", false, false),
            ("https://cdn.discordapp.com@example.org/a.png", false, false),
            ("http://127.0.0.1:8080/files/a.png", false, true),
            ("http://127.0.0.1:8081/files/a.png", false, false),
            ("https://127.0.0.1:8080/files/a.png", false, false),
            ("file:///etc/passwd", false, false),
            ("a.png", false, false),
        ];
        for (source, real_takes, test_takes) in cases {
            let takes = |discord: &Discord| discord.account.address(source).is_ok();
            assert_eq!((takes(&real), takes(&test)), (real_takes, test_takes), "{source}");
        }
    }
}
