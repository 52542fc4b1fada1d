//! Attachments.

use hermes_gateway::{Attachment, Channel, FetchError};
use hermes_testkit::discord::{DownloadBehavior, UserFile, UserPost};

use crate::fixture::{BotFixture, with_timeout};

/// Sends a message with a file and returns the received attachment.
async fn send_file(bot: &mut BotFixture, file: UserFile) -> Attachment {
    let dm = bot.server.dm_channel(bot.ann);
    bot.server.send_post(
        bot.ann,
        dm,
        UserPost { text: "look".to_owned(), files: vec![file], ..UserPost::default() },
    );
    bot.next_message().await.attachments.remove(0)
}

/// Creates an empty file to download into.
fn create_target(folder: &tempfile::TempDir) -> std::path::PathBuf {
    let path = folder.path().join("target");
    std::fs::write(&path, "").unwrap();
    path
}

#[tokio::test]
async fn a_file_is_downloaded_completely() {
    let mut bot = BotFixture::new().await;
    let folder = tempfile::tempdir().unwrap();
    let bytes = b"0123456789".repeat(100);
    let file = UserFile {
        name: "notes.txt".to_owned(),
        content_type: Some("text/plain".to_owned()),
        bytes: bytes.clone(),
        download: DownloadBehavior::Slow(300, 1),
        ..UserFile::default()
    };
    let file = send_file(&mut bot, file).await;
    assert_eq!((file.name.as_str(), file.size), ("notes.txt", 1000));
    assert_eq!(file.media_type.as_deref(), Some("text/plain"));
    let into = create_target(&folder);
    assert_eq!(with_timeout(bot.discord.download_attachment(&file, &into, 1000)).await, Ok(1000));
    assert_eq!(std::fs::read(&into).unwrap(), bytes);
    // A file with a declared size over the limit is not requested.
    assert_eq!(bot.discord.download_attachment(&file, &into, 999).await, Err(FetchError::TooLarge(999)));
    assert_eq!(bot.server.read(|world| world.downloads.len()), 1);
    bot.end().await;
}

#[tokio::test]
async fn a_file_larger_than_declared_is_cut_off() {
    let mut bot = BotFixture::with(|settings| settings.max_attachment_bytes = 100_000).await;
    let folder = tempfile::tempdir().unwrap();
    let file = UserFile {
        name: "small.txt".to_owned(),
        bytes: b"more and more ".repeat(100),
        claimed_size: Some(10),
        download: DownloadBehavior::Endless,
        ..UserFile::default()
    };
    let file = send_file(&mut bot, file).await;
    assert_eq!(file.size, 10);
    let into = create_target(&folder);
    let fetched = with_timeout(bot.discord.download_attachment(&file, &into, u64::MAX)).await;
    assert_eq!(fetched, Err(FetchError::TooLarge(100_000)));
    bot.end().await;
}

#[tokio::test]
async fn files_of_other_hosts_are_not_downloaded() {
    let mut bot = BotFixture::new().await;
    let folder = tempfile::tempdir().unwrap();
    let file = send_file(&mut bot, UserFile { name: "a".to_owned(), ..UserFile::default() }).await;
    let other = Attachment { source: "http://127.0.0.1:9/a".to_owned(), ..file };
    let fetched = bot.discord.download_attachment(&other, &create_target(&folder), 10).await;
    assert_eq!(fetched, Err(FetchError::Failed("not hosted by Discord".to_owned())));
    bot.end().await;
}

#[tokio::test]
async fn an_interrupted_download_fails() {
    let mut bot = BotFixture::new().await;
    let folder = tempfile::tempdir().unwrap();
    let bytes = b"0123456789".repeat(100);
    let file = UserFile {
        name: "a".to_owned(),
        bytes,
        download: DownloadBehavior::Truncated(300),
        ..UserFile::default()
    };
    let file = send_file(&mut bot, file).await;
    let into = create_target(&folder);
    let fetched = with_timeout(bot.discord.download_attachment(&file, &into, u64::MAX)).await;
    assert!(matches!(fetched, Err(FetchError::Failed(_))), "{fetched:?}");
    bot.end().await;
}
