//! What time it is.

use std::time::SystemTime;

use hermes_types::Timestamp;

pub(crate) fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_seconds(since.as_secs())
}
