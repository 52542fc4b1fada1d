//! How the host reaches the guest in a container, and how the guest gets there.

use std::io;
use std::path::Path;

use bollard::container::LogOutput;
use bollard::exec::StartExecResults;
use bollard::models::ExecConfig;
use bollard::query_parameters::UploadToContainerOptionsBuilder;
use futures_util::StreamExt;
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;

use super::container::Container;
use super::engine::Engine;
use super::request::{GUEST_PATH, HERMES_DIR, RUN_DIR};
use crate::registry::SOCKET_NAME;

impl Container {
    /// Connects to the guest through the engine.
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
        let (mut from_host, mut to_host) = theirs.into_split();
        tokio::spawn(async move {
            let upload = tokio::io::copy(&mut from_host, &mut input);
            let download = async {
                while let Some(Ok(part)) = output.next().await {
                    // Standard error is not part of the protocol.
                    if let LogOutput::StdOut { message } = part
                        && to_host.write_all(&message).await.is_err()
                    {
                        break;
                    }
                }
            };
            tokio::select! {
                _ = upload => {}
                () = download => {}
            }
            input.shutdown().await.ok();
        });
        Ok(ours)
    }

    /// Uploads the guest and its run directory before the container starts.
    pub(super) async fn upload_guest(
        &self,
        engine: &Engine,
        guest: &Path,
        run_mode: u32,
        owner: FileOwner,
    ) -> io::Result<()> {
        let program = tokio::fs::read(guest).await?;
        let archive = guest_archive(&program, run_mode, owner)?;
        let options = UploadToContainerOptionsBuilder::new().path(HERMES_DIR).build();
        let body = bollard::body_full(archive.into());
        engine.api.upload_to_container(&self.name, Some(options), body).await.map_err(io::Error::other)
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct FileOwner {
    pub(super) uid: u32,
    pub(super) gid: u32,
}

/// A tar archive with the run directory and the guest program, relative to [`HERMES_DIR`].
fn guest_archive(program: &[u8], run_mode: u32, owner: FileOwner) -> io::Result<Vec<u8>> {
    let mut archive = tar::Builder::new(Vec::with_capacity(program.len() + 4096));
    let entries: [(&str, tar::EntryType, u32, FileOwner, &[u8]); 2] = [
        (RUN_DIR, tar::EntryType::Directory, run_mode, owner, &[]),
        (GUEST_PATH, tar::EntryType::Regular, 0o755, FileOwner::default(), program),
    ];
    for (path, kind, mode, owner, content) in entries {
        let mut header = tar::Header::new_ustar();
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_uid(owner.uid.into());
        header.set_gid(owner.gid.into());
        header.set_size(content.len() as u64);
        header.set_mtime(0);
        let name = path.trim_start_matches(HERMES_DIR).trim_start_matches('/');
        archive.append_data(&mut header, name, content)?;
    }
    archive.into_inner()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tar_lists_the_guest_and_its_run_directory() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.tar");
        let owner = FileOwner { uid: 1001, gid: 1002 };
        std::fs::write(&path, guest_archive(b"hello", 0o700, owner).unwrap()).unwrap();
        #[expect(clippy::disallowed_methods, reason = "tar itself reads the archive")]
        let listed = std::process::Command::new("tar")
            .args(["--list", "--verbose", "--numeric-owner", "--file"])
            .arg(&path)
            .output()
            .unwrap();
        let text = String::from_utf8(listed.stdout).unwrap();
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        let listed_entries: Vec<_> = lines
            .iter()
            .map(|words| (words[0], words[1], words[2], words[5].trim_end_matches('/')))
            .collect();
        assert_eq!(
            listed_entries,
            [("drwx------", "1001/1002", "0", "run"), ("-rwxr-xr-x", "0/0", "5", "guest")]
        );
        assert!(listed.stderr.is_empty());
    }
}
