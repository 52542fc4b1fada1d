//! Downloads attachments.

use std::path::Path;
use std::time::Duration;

use reqwest::Url;
use tokio::fs::OpenOptions;
use tokio::io::AsyncWriteExt as _;

use super::Discord;
use crate::channel::FetchError;
use crate::message::Attachment;

const CDN_HOSTS: [&str; 2] = ["cdn.discordapp.com", "media.discordapp.net"];
const READ_TIMEOUT: Duration = Duration::from_secs(30);
const DOWNLOAD_TIMEOUT: Duration = Duration::from_secs(600);

impl Discord {
    pub(super) async fn download_attachment(
        &self,
        file: &Attachment,
        into: &Path,
        max_bytes: u64,
    ) -> Result<u64, FetchError> {
        let max_bytes = match self.settings.max_attachment_bytes {
            0 => max_bytes,
            chosen => max_bytes.min(chosen),
        };
        if file.size > max_bytes {
            return Err(FetchError::TooLarge(max_bytes));
        }
        let url = self.attachment_url(&file.source)?;
        let fetched = tokio::time::timeout(DOWNLOAD_TIMEOUT, self.stream_to_file(url, into, max_bytes)).await;
        fetched.unwrap_or_else(|_| Err(FetchError::Failed("timed out".to_owned())))
    }

    /// The URL of an attachment, if it is on a host of the platform.
    fn attachment_url(&self, source: &str) -> Result<Url, FetchError> {
        let failed = |reason: &str| FetchError::Failed(reason.to_owned());
        let url = Url::parse(source).map_err(|_| failed("invalid URL"))?;
        let host = url.host_str().unwrap_or_default();
        let is_discord = url.scheme() == "https" && url.port().is_none() && CDN_HOSTS.contains(&host);
        let is_ours = self.settings.api_base.is_some() && self.rest.is_same_origin(&url);
        match is_discord || is_ours {
            true => Ok(url),
            false => Err(failed("not hosted by Discord")),
        }
    }

    async fn stream_to_file(&self, url: Url, into: &Path, max_bytes: u64) -> Result<u64, FetchError> {
        // Without a hint: the model reads it, and must not change what this machine trusts.
        let broke = |error| FetchError::Failed(self.rest.describe_error(error, hermes_net::explain));
        let not_saved = |error: std::io::Error| FetchError::Failed(format!("cannot save it: {error}"));
        let slow = |_| FetchError::Failed("the download stalled".to_owned());
        let client = self.rest.client().map_err(|error| FetchError::Failed(error.to_string()))?;
        let response = tokio::time::timeout(READ_TIMEOUT, client.get(url).send()).await.map_err(slow)?;
        let mut response = response.and_then(reqwest::Response::error_for_status).map_err(broke)?;
        if response.content_length().is_some_and(|length| length > max_bytes) {
            return Err(FetchError::TooLarge(max_bytes));
        }
        // Never create the file here: after a cancelled download nothing would delete it.
        let mut saved = OpenOptions::new().write(true).truncate(true).open(into).await.map_err(not_saved)?;
        let mut size = 0u64;
        while let Some(piece) =
            tokio::time::timeout(READ_TIMEOUT, response.chunk()).await.map_err(slow)?.map_err(broke)?
        {
            size = size.saturating_add(piece.len() as u64);
            if size > max_bytes {
                return Err(FetchError::TooLarge(max_bytes));
            }
            saved.write_all(&piece).await.map_err(not_saved)?;
        }
        saved.flush().await.map_err(not_saved)?;
        Ok(size)
    }
}

#[cfg(test)]
mod tests {
    use crate::channel::discord::rules::tests::settings;
    use crate::channel::discord::{Discord, DiscordSettings, ResumeState};

    #[test]
    fn only_platform_urls_are_downloaded() {
        let plain = settings();
        let local =
            DiscordSettings { api_base: Some("http://127.0.0.1:8080/api/v10".to_owned()), ..plain.clone() };
        let (real, test) =
            (Discord::new(plain, ResumeState::default()), Discord::new(local, ResumeState::default()));
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
            let takes = |discord: &Discord| discord.attachment_url(source).is_ok();
            assert_eq!((takes(&real), takes(&test)), (real_takes, test_takes), "{source}");
        }
    }
}
