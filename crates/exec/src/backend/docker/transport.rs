//! How the guest of a container is reached, and how it gets there.

use std::io;
use std::path::Path;

use bollard::container::LogOutput;
use bollard::exec::StartExecResults;
use bollard::models::ExecConfig;
use bollard::query_parameters::UploadToContainerOptionsBuilder;
use futures_util::StreamExt;
use serde::{Deserialize, Serialize};
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;

use super::container::Container;
use super::engine::{Engine, EngineAddress};
use super::request::{GUEST_PATH, HERMES_DIR, RUN_DIR};
use crate::registry::SOCKET_NAME;

/// What leads to the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum GuestTransport {
    /// Its socket is in a directory of this machine that the container shares.
    Socket,
    /// A program in the container passes on what is said: an engine on another machine shares no directory with us.
    #[serde(rename = "Exec")]
    EngineExec,
}

impl GuestTransport {
    /// The one to an engine there.
    pub(super) fn for_address(address: &EngineAddress) -> Self {
        match address {
            EngineAddress::Unix(_) => Self::Socket,
            EngineAddress::Tcp(_) => Self::EngineExec,
        }
    }
}

impl Container {
    /// A stream to its guest through the engine.
    pub(crate) async fn connect_through_engine(&self) -> io::Result<UnixStream> {
        let engine = Engine::connect_cached(&self.engine).await.map_err(io::Error::other)?;
        let socket = format!("{RUN_DIR}/{SOCKET_NAME}");
        let config = ExecConfig {
            cmd: Some([GUEST_PATH, "attach", "--socket", &socket].map(str::to_owned).to_vec()),
            attach_stdin: Some(true),
            attach_stdout: Some(true),
            attach_stderr: Some(true),
            ..ExecConfig::default()
        };
        let started = async {
            let exec = engine.api.create_exec(&self.name, config).await?;
            engine.api.start_exec(&exec.id, None).await
        };
        let StartExecResults::Attached { mut output, mut input } = started.await.map_err(io::Error::other)?
        else {
            return Err(io::ErrorKind::ConnectionRefused.into());
        };
        let (ours, theirs) = UnixStream::pair()?;
        let (mut said, mut answered) = theirs.into_split();
        tokio::spawn(async move {
            let there = tokio::io::copy(&mut said, &mut input);
            let back = async {
                while let Some(Ok(part)) = output.next().await {
                    // What it complains about is no part of the conversation, which ends then.
                    if let LogOutput::StdOut { message } = part
                        && answered.write_all(&message).await.is_err()
                    {
                        break;
                    }
                }
            };
            tokio::select! {
                _ = there => {}
                () = back => {}
            }
            input.shutdown().await.ok();
        });
        Ok(ours)
    }

    /// Puts the guest into the container before it is started, with a directory to listen in.
    pub(super) async fn upload_guest(
        &self,
        engine: &Engine,
        guest: &Path,
        run_mode: u32,
        owner: FileOwner,
    ) -> io::Result<()> {
        let program = tokio::fs::read(guest).await?;
        let inside = |path: &str| path.trim_start_matches(HERMES_DIR).trim_start_matches('/').to_owned();
        let mut archive = Vec::with_capacity(program.len() + 8 * BLOCK);
        archive.extend(header(&format!("{}/", inside(RUN_DIR)), Entry::Directory, run_mode, 0, owner)?);
        archive.extend(header(&inside(GUEST_PATH), Entry::File, 0o755, program.len(), FileOwner::default())?);
        archive.extend(&program);
        // Its end is filled up, and two empty blocks follow.
        archive.resize(archive.len().next_multiple_of(BLOCK) + 2 * BLOCK, 0);
        let options = UploadToContainerOptionsBuilder::new().path(HERMES_DIR).build();
        let body = bollard::body_full(archive.into());
        engine.api.upload_to_container(&self.name, Some(options), body).await.map_err(io::Error::other)
    }
}

/// Whose a file in an archive is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct FileOwner {
    pub(super) uid: u32,
    pub(super) gid: u32,
}

const BLOCK: usize = 512;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Entry {
    File,
    Directory,
}

/// What stands before a file in a tar archive, by POSIX.
fn header(path: &str, entry: Entry, mode: u32, size: usize, owner: FileOwner) -> io::Result<Vec<u8>> {
    let kind = if entry == Entry::File { "0" } else { "5" };
    let number = |value: u64, digits: usize| format!("{value:0digits$o}\0");
    let fields = [
        (0, 100, path.to_owned()),
        (100, 8, number(mode.into(), 7)),
        (108, 8, number(owner.uid.into(), 7)),
        (116, 8, number(owner.gid.into(), 7)),
        (124, 12, number(size as u64, 11)),
        (136, 12, number(0, 11)),
        // The sum is made as if its own field were blank.
        (148, 8, " ".repeat(8)),
        (156, 1, kind.to_owned()),
        (257, 8, "ustar\x0000".to_owned()),
    ];
    let mut block = vec![0; BLOCK];
    let mut put = |at: usize, room: usize, text: &str| -> io::Result<u32> {
        let field = block.get_mut(at..at + text.len()).filter(|field| field.len() <= room);
        field.ok_or(io::ErrorKind::InvalidInput)?.copy_from_slice(text.as_bytes());
        Ok(text.bytes().map(u32::from).sum())
    };
    let mut sum = 0;
    for (at, room, text) in &fields {
        sum += put(*at, *room, text)?;
    }
    put(148, 8, &format!("{sum:06o}\0 "))?;
    Ok(block)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_is_what_tar_reads() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.tar");
        let owner = FileOwner { uid: 1001, gid: 1002 };
        let mut archive = header("dir/", Entry::Directory, 0o700, 0, owner).unwrap();
        archive.extend(header("dir/file", Entry::File, 0o755, 5, FileOwner::default()).unwrap());
        archive.extend(b"hello");
        archive.resize(archive.len().next_multiple_of(BLOCK) + 2 * BLOCK, 0);
        std::fs::write(&path, archive).unwrap();
        #[expect(clippy::disallowed_methods, reason = "it is asked what it reads")]
        let listed = std::process::Command::new("tar")
            .args(["--list", "--verbose", "--numeric-owner", "--file"])
            .arg(&path)
            .output()
            .unwrap();
        let text = String::from_utf8(listed.stdout).unwrap();
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        let seen: Vec<_> = lines.iter().map(|words| (words[0], words[1], words[2], words[5])).collect();
        assert_eq!(seen, [("drwx------", "1001/1002", "0", "dir/"), ("-rwxr-xr-x", "0/0", "5", "dir/file")]);
        assert!(listed.stderr.is_empty());
        assert!(header(&"x".repeat(101), Entry::File, 0, 0, owner).is_err());
    }
}
