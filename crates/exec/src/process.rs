//! Background processes of a place.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

pub use hermes_guest::client::NoticeStream;
use hermes_guest::client::{Client, OutputFollower};
use hermes_guest::protocol::message::{InputHistory, OutputPage, ProcessId, ProcessView};
pub use hermes_guest::protocol::message::{ProcessEvent, ProcessNotice};
use hermes_policy::Permit;
use hermes_types::{Job, PlaceId, SessionKey, TypedInput, Work};
use thiserror::Error as ThisError;

use crate::Error;

/// Identifies a background process on this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessHandle {
    /// The first digits of the place id.
    pub place: String,
    pub process: ProcessId,
}

#[derive(Debug, Clone, PartialEq, Eq, ThisError)]
#[error("not a process id; run `hermes process ls` to list them")]
pub struct InvalidHandle;

impl ProcessHandle {
    pub fn new(place: &PlaceId, process: ProcessId) -> Self {
        Self { place: place.as_str().chars().take(8).collect(), process }
    }
}

impl fmt::Display for ProcessHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "proc_{}_{}_{}", self.place, self.process.pid, self.process.started)
    }
}

impl FromStr for ProcessHandle {
    type Err = InvalidHandle;

    fn from_str(text: &str) -> Result<Self, InvalidHandle> {
        let parts: Vec<&str> = text.split('_').collect();
        let &["proc", place, pid, started] = parts.as_slice() else { return Err(InvalidHandle) };
        let is_hash = place.len() == 8 && place.bytes().all(|byte| byte.is_ascii_hexdigit());
        let (Ok(pid), Ok(started), true) = (pid.parse(), started.parse(), is_hash) else {
            return Err(InvalidHandle);
        };
        Ok(Self { place: place.to_owned(), process: ProcessId { pid, started } })
    }
}

#[derive(Debug, Clone)]
pub struct Processes {
    client: Client,
    place: PlaceId,
    session: SessionKey,
}

impl Processes {
    pub(crate) fn new(client: Client, place: PlaceId, session: SessionKey) -> Self {
        Self { client, place, session }
    }

    /// Running and ended processes, and those that foreground commands left running.
    pub async fn list(&self) -> Result<Vec<ProcessView>, Error> {
        Ok(self.client.processes().await?)
    }

    pub async fn show(&self, id: ProcessId) -> Result<ProcessView, Error> {
        Ok(self.client.process(id).await?)
    }

    pub async fn output(&self, id: ProcessId, offset: u64, limit: u32) -> Result<OutputPage, Error> {
        Ok(self.client.read_output(id, offset, limit).await?)
    }

    /// Streams the output from an offset until all of the process tree has ended.
    pub async fn follow(&self, id: ProcessId, offset: u64) -> Result<OutputFollower, Error> {
        Ok(self.client.follow_output(id, offset).await?)
    }

    /// Waits for the end up to a time limit; the view says whether it has ended.
    pub async fn wait(&self, id: ProcessId, timeout: Duration) -> Result<ProcessView, Error> {
        Ok(self.client.wait(id, timeout).await?)
    }

    /// Kills the whole process tree and waits until it is gone.
    pub async fn kill(&self, id: ProcessId) -> Result<ProcessView, Error> {
        Ok(self.client.kill(id).await?)
    }

    /// The job of typing a text into a process, by which the gate must judge it.
    pub async fn input_job(&self, id: ProcessId, text: String) -> Result<Job, Error> {
        let InputHistory { command, cwd, typed } = self.client.input_history(id).await?;
        let to_text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let typed_before = typed.map(|typed| to_text(&typed));
        let input = TypedInput { program: to_text(&command), typed_before, text };
        Ok(Job::new(Work::Input(input), to_text(&cwd)))
    }

    /// Writes the text of a permit to the process's input, unless more was typed since it was judged.
    pub async fn write(&self, id: ProcessId, permit: Permit) -> Result<(), Error> {
        let job = permit.redeem(&self.place, &self.session)?;
        let Work::Input(input) = job.work else { return Err(Error::NotInput) };
        Ok(self.client.write_stdin(id, input.typed_before.as_deref(), input.text.as_bytes()).await?)
    }

    pub async fn close_input(&self, id: ProcessId) -> Result<(), Error> {
        Ok(self.client.close_stdin(id).await?)
    }

    /// Notices from a number on: stored ones first, then each as it arrives.
    pub async fn notices(&self, from: u64) -> Result<NoticeStream, Error> {
        Ok(self.client.follow_notices(from).await?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_round_trips_and_other_text_is_refused() {
        let handle = ProcessHandle::new(&PlaceId::new("1a2b3c4d5e6f"), ProcessId { pid: 12, started: 345 });
        assert_eq!(handle.to_string(), "proc_1a2b3c4d_12_345");
        assert_eq!("proc_1a2b3c4d_12_345".parse(), Ok(handle));
        for wrong in [
            "", "12.345", "proc_1a2b3c4_12_345", "proc_1a2b3c4d_12", "proc_../../x_1_2",
            "proc_1a2b3c4d_12_345_6",
        ] {
            assert_eq!(wrong.parse::<ProcessHandle>(), Err(InvalidHandle), "{wrong}");
        }
    }
}
