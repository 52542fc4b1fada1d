//! Files that come with letters.

use hermes_gateway::channel::{Channel, Unfetched};
use hermes_gateway::letter::Attachment;
use hermes_testkit::discord::{File, Manner, Post};

use crate::bed::{Bed, within};

/// Says something with a file, and gives the file as it arrives.
async fn sent(bed: &mut Bed, file: File) -> Attachment {
    let dm = bed.server.dm(bed.ann);
    bed.server.post(bed.ann, dm, Post { text: "look".to_owned(), files: vec![file], ..Post::default() });
    bed.letter().await.files.remove(0)
}

/// A file to fetch into.
fn empty(folder: &tempfile::TempDir) -> std::path::PathBuf {
    let path = folder.path().join("kept");
    std::fs::write(&path, "").unwrap();
    path
}

#[tokio::test]
async fn a_file_is_fetched_whole() {
    let mut bed = Bed::new().await;
    let folder = tempfile::tempdir().unwrap();
    let bytes = b"0123456789".repeat(100);
    let file = File {
        name: "notes.txt".to_owned(),
        content_type: Some("text/plain".to_owned()),
        bytes: bytes.clone(),
        manner: Manner::Slow(300, 1),
        ..File::default()
    };
    let file = sent(&mut bed, file).await;
    assert_eq!((file.name.as_str(), file.size), ("notes.txt", 1000));
    assert_eq!(file.media_type.as_deref(), Some("text/plain"));
    let into = empty(&folder);
    assert_eq!(within(bed.discord.fetch(&file, &into, 1000)).await, Ok(1000));
    assert_eq!(std::fs::read(&into).unwrap(), bytes);
    // One that says that it is too large is not even asked for.
    assert_eq!(bed.discord.fetch(&file, &into, 999).await, Err(Unfetched::TooLarge(999)));
    assert_eq!(bed.server.look(|world| world.downloads.len()), 1);
    bed.end().await;
}

#[tokio::test]
async fn a_file_that_lies_about_its_size_is_cut_off() {
    let mut bed = Bed::with(|settings| settings.max_attachment_bytes = 100_000).await;
    let folder = tempfile::tempdir().unwrap();
    let file = File {
        name: "small.txt".to_owned(),
        bytes: b"more and more ".repeat(100),
        claims: Some(10),
        manner: Manner::Endless,
        ..File::default()
    };
    let file = sent(&mut bed, file).await;
    assert_eq!(file.size, 10);
    let into = empty(&folder);
    let fetched = within(bed.discord.fetch(&file, &into, u64::MAX)).await;
    assert_eq!(fetched, Err(Unfetched::TooLarge(100_000)));
    bed.end().await;
}

#[tokio::test]
async fn files_of_other_hosts_are_not_fetched() {
    let mut bed = Bed::new().await;
    let folder = tempfile::tempdir().unwrap();
    let file = sent(&mut bed, File { name: "a".to_owned(), ..File::default() }).await;
    let other = Attachment { source: "http://127.0.0.1:9/a".to_owned(), ..file };
    let fetched = bed.discord.fetch(&other, &empty(&folder), 10).await;
    assert_eq!(fetched, Err(Unfetched::Failed("it is not kept by Discord".to_owned())));
    bed.end().await;
}

#[tokio::test]
async fn a_file_that_breaks_off_is_not_had() {
    let mut bed = Bed::new().await;
    let folder = tempfile::tempdir().unwrap();
    let bytes = b"0123456789".repeat(100);
    let file = File { name: "a".to_owned(), bytes, manner: Manner::Cut(300), ..File::default() };
    let file = sent(&mut bed, file).await;
    let into = empty(&folder);
    let fetched = within(bed.discord.fetch(&file, &into, u64::MAX)).await;
    assert!(matches!(fetched, Err(Unfetched::Failed(_))), "{fetched:?}");
    bed.end().await;
}
