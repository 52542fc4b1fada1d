//! What tools do with files.

use hermes_guest::client::Client;
use hermes_guest::protocol::file::{
    Edit, Expect, Occurrences, Parents, Part, Place, Scope, Search, Target, Write,
};
use serde_bytes::ByteBuf;
use tokio::net::UnixStream;

use crate::opened::Opened;

/// The files of a place. Below its directory there are a `tree` to search and a file to patch.
pub(crate) struct Files {
    client: Client,
    /// What the patched file has, and what it gets.
    words: (&'static str, &'static str),
}

impl Files {
    pub(crate) async fn of(opened: &Opened) -> Self {
        let stream = UnixStream::connect(opened.room.join("guest.sock")).await.unwrap();
        Self { client: Client::connect(stream).await.unwrap(), words: ("alpha", "omega") }
    }

    pub(crate) async fn touch(&mut self, action: &str) {
        let at = |path: &str| Place { session: Some("session".into()), path: ByteBuf::from(path) };
        match action {
            "read" => {
                let part = Part::Lines { first: 1, count: 500 };
                let (text, _) = self.client.read_small(at("tree/file7.txt"), part, 1 << 20).await.unwrap();
                assert!(text.starts_with(b"line 0 "));
            }
            "write" => {
                let write = Write { expect: Expect::Anything, parents: Parents::Create };
                let mut writer = self.client.write(at("written.txt"), write).await.unwrap();
                writer.write("a line of text\n".repeat(500).as_bytes()).await.unwrap();
                writer.finish().await.unwrap();
            }
            "patch" => {
                let (old, new) = self.words;
                let edit =
                    Edit { old: ByteBuf::from(old), new: ByteBuf::from(new), occurrences: Occurrences::One };
                self.client.patch(at("patched.txt"), vec![edit]).await.unwrap();
                self.words = (new, old);
            }
            "search" => {
                let target = Target::Lines { pattern: "line 7 of file 5".to_owned(), context: 0 };
                let search =
                    Search { target, globs: Vec::new(), scope: Scope::Tracked, offset: 0, limit: 50 };
                assert_eq!(self.client.search(at("tree"), search).await.unwrap().end.hits, 11);
            }
            _ => panic!("{action}"),
        }
    }
}
