//! How many places there may be, and what happens to one too many.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::time::Duration;

use hermes_guest::client::Client;
use tokio::time::{Instant, sleep, timeout};

use crate::registry::{Engines, Room, blocking, rooms, sweep};
use crate::{Error, Host};

/// How long somebody waits for a place to end before giving up.
const PATIENCE: Duration = Duration::from_secs(60);
/// A place that was idle for so long makes way for another.
const IDLE_ENOUGH: Duration = Duration::from_secs(5);
/// How often is looked.
const PAUSE: Duration = Duration::from_millis(100);

/// Makes the room as soon as there may be one more. Whoever came first is let in first; the place that has been
/// idle for longest makes way.
pub(crate) async fn admit(host: &Host, room: &Room, engines: Engines) -> Result<(), Error> {
    let path = host.run.join(".admission");
    let open = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(&path);
    let turn = open.map_err(Error::file(&path))?;
    let deadline = Instant::now() + PATIENCE;
    let full = || Error::Full { most: host.most_places };
    while turn.try_lock().is_err() {
        if Instant::now() > deadline {
            return Err(full());
        }
        sleep(PAUSE).await;
    }
    loop {
        let count = fs::read_dir(&host.run).map_err(Error::file(&host.run))?;
        let count = count.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).count();
        if count < host.most_places {
            return room.make();
        }
        let run = host.run.clone();
        blocking(move || sweep(&run, engines)).await?;
        if !make_way(host).await? {
            if Instant::now() > deadline {
                return Err(full());
            }
            sleep(PAUSE).await;
        }
    }
}

/// Ends the place that has been idle for longest, if one has been idle long enough.
async fn make_way(host: &Host) -> Result<bool, Error> {
    let mut idlest = None;
    for room in rooms(&host.run)? {
        let Some(idle) = idle(&room).await else { continue };
        if idle >= IDLE_ENOUGH && idlest.as_ref().is_none_or(|(longest, _)| idle > *longest) {
            idlest = Some((idle, room));
        }
    }
    let Some((_, room)) = idlest else { return Ok(false) };
    // Somebody who makes it again right now waits for us to let him in, so we cannot wait for him.
    let Some(_lock) = room.try_lock() else { return Ok(false) };
    room.end().await?;
    Ok(true)
}

async fn idle(room: &Room) -> Option<Duration> {
    let ask = async {
        let client = Client::connect(room.knock().await.ok()?).await.ok()?;
        Some(client.stats().await.ok()?.idle)
    };
    timeout(Duration::from_secs(1), ask).await.ok()?
}
