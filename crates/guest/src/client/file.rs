//! Files of the place.

use serde_bytes::ByteBuf;

use super::Client;
use super::error::{self, Error};
use super::link::Link;
use crate::protocol::file::{
    Content, Edit, Entry, FileReply, FileRequest, Found, Hit, Part, Place, ReadEnd, Search, Stat, Write,
    Written,
};
use crate::protocol::frame::Frames;
use crate::protocol::limit;
use crate::protocol::message::{Reply, Request};
use crate::protocol::mux::Stream;

impl Client {
    /// Begins to read a file.
    pub async fn read(&self, place: Place, part: Part) -> Result<FileReader, Error> {
        let frames = self.link.open(&Request::File(FileRequest::Read(place, part))).await?;
        Ok(FileReader { link: self.link.clone(), frames })
    }

    /// Reads a part of a file that is expected to be small; more than `limit` bytes are an error.
    pub async fn read_small(
        &self,
        place: Place,
        part: Part,
        limit: usize,
    ) -> Result<(Vec<u8>, ReadEnd), Error> {
        let mut reader = self.read(place, part).await?;
        let mut all = Vec::new();
        loop {
            match reader.next().await? {
                Piece::Data(data) if all.len() + data.len() > limit => return Err(Error::TooLarge),
                Piece::Data(data) => all.extend_from_slice(&data),
                Piece::End(end) => return Ok((all, end)),
            }
        }
    }

    /// Begins to write a file. Nothing changes in the place until [`FileWriter::finish`].
    pub async fn write(&self, place: Place, write: Write) -> Result<FileWriter, Error> {
        let frames = self.link.open(&Request::File(FileRequest::Write(place, write))).await?;
        Ok(FileWriter { link: self.link.clone(), frames, length: 0 })
    }

    /// Replaces text in a file: all edits or none. Gives the number of replacements for each edit.
    pub async fn patch(&self, place: Place, edits: Vec<Edit>) -> Result<(Vec<u64>, Written), Error> {
        let count = edits.len();
        match self.file(FileRequest::Patch(place, edits)).await? {
            Reply::File(FileReply::Patched { counts, written }) if counts.len() == count => {
                Ok((counts, written))
            }
            other => Err(self.link.unexpected(other)),
        }
    }

    /// Describes a file, a symbolic link at the end of the path itself and not what it points to.
    pub async fn stat(&self, place: Place) -> Result<Stat, Error> {
        match self.file(FileRequest::Stat(place)).await? {
            Reply::File(FileReply::Stat(stat)) => Ok(stat),
            other => Err(self.link.unexpected(other)),
        }
    }

    /// Removes a file, an empty directory, or a symbolic link itself.
    pub async fn remove(&self, place: Place) -> Result<(), Error> {
        match self.file(FileRequest::Remove(place)).await? {
            Reply::File(FileReply::Removed) => Ok(()),
            other => Err(self.link.unexpected(other)),
        }
    }

    /// Lists a directory, sorted by name, and says how many entries there are in all.
    pub async fn list(&self, place: Place) -> Result<Listing<Entry, u64>, Error> {
        let mut frames = self.link.open(&Request::File(FileRequest::List(place))).await?;
        let mut items = Vec::new();
        loop {
            match self.link.next(&mut frames).await? {
                Reply::File(FileReply::Listed { total }) => return Ok(Listing { items, end: total }),
                Reply::File(FileReply::Entries(part)) if items.len() + part.len() <= limit::PAGE => {
                    items.extend(part)
                }
                other => return Err(self.link.unexpected(other)),
            }
        }
    }

    /// Searches files below a directory, or one file.
    pub async fn search(&self, place: Place, search: Search) -> Result<Listing<Hit, Found>, Error> {
        let most = usize::try_from(search.limit).unwrap_or(limit::PAGE).min(limit::PAGE);
        let context = match &search.target {
            crate::protocol::file::Target::Lines { context, .. } => usize::from(*context),
            _ => 0,
        };
        let most = most.saturating_mul(1 + 2 * context).saturating_add(2 * context);
        let mut frames = self.link.open(&Request::File(FileRequest::Search(place, Box::new(search)))).await?;
        let mut items = Vec::new();
        loop {
            match self.link.next(&mut frames).await? {
                Reply::File(FileReply::Hits(part)) if items.len() + part.len() <= most => items.extend(part),
                Reply::File(FileReply::Searched(end)) => return Ok(Listing { items, end }),
                other => return Err(self.link.unexpected(other)),
            }
        }
    }

    async fn file(&self, request: FileRequest) -> Result<Reply, Error> {
        self.link.ask(&Request::File(request)).await
    }
}

/// Items, and what is to be said of all of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing<T, E> {
    /// Those of this page.
    pub items: Vec<T>,
    /// About all.
    pub end: E,
}

/// A file that is being read.
#[derive(Debug)]
pub struct FileReader {
    link: Link,
    frames: Frames<Stream>,
}

/// What comes from a file that is being read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// Some bytes.
    Data(ByteBuf),
    /// That was all.
    End(ReadEnd),
}

impl FileReader {
    /// The next piece.
    pub async fn next(&mut self) -> Result<Piece, Error> {
        match self.link.next(&mut self.frames).await? {
            Reply::File(FileReply::Data(data)) if data.len() <= limit::CHUNK => Ok(Piece::Data(data)),
            Reply::File(FileReply::Read(end)) => Ok(Piece::End(end)),
            other => Err(self.link.unexpected(other)),
        }
    }
}

/// A file that is being written.
#[derive(Debug)]
pub struct FileWriter {
    link: Link,
    frames: Frames<Stream>,
    length: u64,
}

impl FileWriter {
    /// More bytes. What is wrong with the file may be known before all of them are sent.
    pub async fn write(&mut self, data: &[u8]) -> Result<(), Error> {
        for chunk in data.chunks(limit::CHUNK) {
            let content = Content::Data(ByteBuf::from(chunk));
            let Frames { reader, writer } = &mut self.frames;
            tokio::select! {
                biased;
                early = self.link.receive(reader) => return Err(self.link.unexpected(early?)),
                sent = writer.send(&content) => sent.map_err(|error| error::on_send(&error))?,
            }
            self.length += chunk.len() as u64;
        }
        Ok(())
    }

    /// Puts the file into its place, if everything arrived and what was expected is there.
    pub async fn finish(mut self) -> Result<Written, Error> {
        let end = Content::End { length: self.length };
        self.frames.writer.send(&end).await.map_err(|error| error::on_send(&error))?;
        let answer = async { self.link.next(&mut self.frames).await };
        match self.link.within(limit::ANSWER, answer).await? {
            Reply::File(FileReply::Written(written)) => Ok(written),
            other => Err(self.link.unexpected(other)),
        }
    }
}
