//! File operations.

use serde_bytes::ByteBuf;

use super::Client;
use super::connection::RequestStream;
use super::error::Error;
use crate::protocol::file::{
    DirEntry, FileEdit, FileRange, FileReply, FileRequest, FileSearch, FileStat, JudgedPath, ReadSummary,
    SearchHit, SearchMode, SearchSummary, WriteChunk, WriteOptions, WriteResult,
};
use crate::protocol::frame::FrameStream;
use crate::protocol::limit;
use crate::protocol::message::{GuestReply, GuestRequest};

impl Client {
    /// Starts reading a file.
    pub async fn read_file(&self, path: JudgedPath, range: FileRange) -> Result<FileReader, Error> {
        let request = GuestRequest::File(path, FileRequest::Read(range));
        Ok(FileReader { stream: self.send_request(&request).await? })
    }

    /// Starts writing a file. The target does not change until [`FileWriter::finish`].
    pub async fn write_file(&self, path: JudgedPath, write: WriteOptions) -> Result<FileWriter, Error> {
        let request = GuestRequest::WriteFile(path, write);
        Ok(FileWriter { stream: self.send_request(&request).await?, length: 0 })
    }

    /// Applies all edits to a file, or none. Returns the number of replacements of each edit.
    pub async fn patch_file(
        &self,
        path: JudgedPath,
        edits: Vec<FileEdit>,
    ) -> Result<(Vec<u64>, WriteResult), Error> {
        let count = edits.len();
        match self.call_file(path, FileRequest::Patch(edits)).await? {
            GuestReply::File(FileReply::Patched { counts, written }) if counts.len() == count => {
                Ok((counts, written))
            }
            other => Err(self.unexpected_reply(other)),
        }
    }

    /// Describes a file. A final symbolic link is not followed.
    pub async fn stat_file(&self, path: JudgedPath) -> Result<FileStat, Error> {
        match self.call_file(path, FileRequest::Stat).await? {
            GuestReply::File(FileReply::Stat(stat)) => Ok(stat),
            other => Err(self.unexpected_reply(other)),
        }
    }

    /// Removes a file, an empty directory, or a symbolic link itself.
    pub async fn remove_file(&self, path: JudgedPath) -> Result<(), Error> {
        match self.call_file(path, FileRequest::Remove).await? {
            GuestReply::File(FileReply::Removed) => Ok(()),
            other => Err(self.unexpected_reply(other)),
        }
    }

    /// Lists a directory, sorted by name. The summary is the total number of entries.
    pub async fn list_dir(&self, path: JudgedPath) -> Result<ResultPage<DirEntry, u64>, Error> {
        let request = GuestRequest::File(path, FileRequest::List);
        let read = async {
            let mut stream = self.send_request(&request).await?;
            let mut page = PageBuilder::new(limit::MAX_PAGE_ENTRIES);
            loop {
                match stream.next_reply().await? {
                    GuestReply::File(FileReply::ListDone { total }) => return Ok(page.finish(total)),
                    GuestReply::File(FileReply::DirEntries(range))
                        if page.fits(&range, |entry| entry.name.len()) =>
                    {
                        page.items.extend(range)
                    }
                    other => return Err(self.unexpected_reply(other)),
                }
            }
        };
        self.with_timeout(limit::REPLY_TIMEOUT, read).await
    }

    /// Searches the files below a directory, or one file.
    pub async fn search_files(
        &self,
        path: JudgedPath,
        search: FileSearch,
    ) -> Result<ResultPage<SearchHit, SearchSummary>, Error> {
        let max_items =
            usize::try_from(search.limit).unwrap_or(limit::MAX_PAGE_ENTRIES).min(limit::MAX_PAGE_ENTRIES);
        let context = match &search.target {
            SearchMode::Lines { context, .. } => usize::from(*context),
            _ => 0,
        };
        let max_items = max_items.saturating_mul(1 + 2 * context).saturating_add(2 * context);
        let request = GuestRequest::File(path, FileRequest::Search(Box::new(search)));
        let size = |hit: &SearchHit| match hit {
            SearchHit::Line { path, text, .. } => path.len() + text.len(),
            SearchHit::File { path, .. } => path.len(),
        };
        let read = async {
            let mut stream = self.send_request(&request).await?;
            let mut page = PageBuilder::new(max_items);
            loop {
                match stream.next_reply().await? {
                    GuestReply::File(FileReply::Hits(range)) if page.fits(&range, size) => {
                        page.items.extend(range)
                    }
                    GuestReply::File(FileReply::SearchDone(end)) => return Ok(page.finish(end)),
                    other => return Err(self.unexpected_reply(other)),
                }
            }
        };
        self.with_timeout(limit::SEARCH_TIMEOUT, read).await
    }

    async fn call_file(&self, path: JudgedPath, request: FileRequest) -> Result<GuestReply, Error> {
        self.call_with_timeout(&GuestRequest::File(path, request)).await
    }
}

/// The items of one page, and a summary of all pages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResultPage<T, E> {
    pub items: Vec<T>,
    pub summary: E,
}

/// Collects a page of at most this many items and [`limit::MAX_PAGE_BYTES`].
struct PageBuilder<T> {
    items: Vec<T>,
    max_items: usize,
    free_bytes: usize,
}

impl<T> PageBuilder<T> {
    fn new(max_items: usize) -> Self {
        Self { items: Vec::new(), max_items, free_bytes: limit::MAX_PAGE_BYTES }
    }

    /// Whether the page has room for these items, which it then counts.
    fn fits(&mut self, items: &[T], size: impl Fn(&T) -> usize) -> bool {
        let free = self.free_bytes.checked_sub(items.iter().map(size).sum());
        self.free_bytes = free.unwrap_or(0);
        free.is_some() && self.items.len() + items.len() <= self.max_items
    }

    fn finish<E>(self, summary: E) -> ResultPage<T, E> {
        ResultPage { items: self.items, summary }
    }
}

#[derive(Debug)]
pub struct FileReader {
    stream: RequestStream,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileChunk {
    Data(ByteBuf),
    End(ReadSummary),
}

impl FileReader {
    pub async fn next_chunk(&mut self) -> Result<FileChunk, Error> {
        match self.stream.next_reply().await? {
            GuestReply::File(FileReply::Data(data)) if data.len() <= limit::CHUNK_BYTES => {
                Ok(FileChunk::Data(data))
            }
            GuestReply::File(FileReply::ReadDone(end)) => Ok(FileChunk::End(end)),
            other => Err(self.stream.client.unexpected_reply(other)),
        }
    }
}

#[derive(Debug)]
pub struct FileWriter {
    stream: RequestStream,
    length: u64,
}

impl FileWriter {
    /// Sends more content. Fails early if the guest already rejected the write.
    pub async fn write(&mut self, data: &[u8]) -> Result<(), Error> {
        for chunk in data.chunks(limit::CHUNK_BYTES) {
            let content = WriteChunk::Data(ByteBuf::from(chunk));
            let RequestStream { client, frames: FrameStream { reader, writer } } = &mut self.stream;
            tokio::select! {
                biased;
                early = client.read_reply(reader) => return Err(client.unexpected_reply(early?)),
                sent = writer.send(&content) => sent?,
            }
            self.length += chunk.len() as u64;
        }
        Ok(())
    }

    /// Installs the file, if all content arrived and the precondition holds.
    pub async fn finish(mut self) -> Result<WriteResult, Error> {
        self.stream.send(&WriteChunk::End { length: self.length }).await?;
        let client = self.stream.client.clone();
        match client.with_timeout(limit::REPLY_TIMEOUT, self.stream.next_reply()).await? {
            GuestReply::File(FileReply::Written(written)) => Ok(written),
            other => Err(client.unexpected_reply(other)),
        }
    }
}
