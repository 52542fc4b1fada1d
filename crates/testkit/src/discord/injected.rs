//! What a test can have go wrong.

use serde_json::Value;

/// Something that goes wrong with the next calls of a route.
///
/// A route is a method and a path without `/api/v10`, where `*` stands for one step: `POST /channels/*/messages`.
#[derive(Debug, Clone, PartialEq)]
pub enum InjectedFault {
    /// Too many requests.
    RateLimit {
        /// The seconds to wait.
        retry_after: f64,
        /// Whether it is for all routes.
        global: bool,
    },
    /// Nothing is done, and the status is this.
    Fail(u16),
    /// Everything is done, and the connection breaks before the answer.
    LoseResponse,
    /// Nothing is done, and the connection breaks.
    Disconnect,
    /// The connection breaks, and everything is done when [`super::Server::arrive_late`] says so.
    Delay,
}

/// A request that is on its way.
#[derive(Debug)]
pub(super) struct DelayedRequest {
    pub(super) method: String,
    pub(super) path: String,
    pub(super) body: Value,
}

/// All that goes wrong now.
#[derive(Debug, Default)]
pub(super) struct InjectedFaults {
    pub(super) rules: Vec<(String, u32, InjectedFault)>,
    /// Requests are taken and not answered.
    pub(super) stalled: bool,
    /// New websockets get not a word.
    pub(super) silent: bool,
    /// Requests that are on their way.
    pub(super) delayed: Vec<DelayedRequest>,
    /// The bot may not make threads.
    pub(super) no_threads: bool,
    /// A thread does not have the id of its message.
    pub(super) separate_thread_ids: bool,
}

impl InjectedFaults {
    /// What goes wrong with this call.
    pub(super) fn next(&mut self, line: &str) -> Option<InjectedFault> {
        let place = self.rules.iter().position(|(route, ..)| matches(route, line))?;
        let (_, left, trouble) = self.rules.get_mut(place)?;
        *left -= 1;
        let (left, trouble) = (*left, trouble.clone());
        if left == 0 {
            self.rules.remove(place);
        }
        Some(trouble)
    }
}

fn matches(route: &str, line: &str) -> bool {
    let (mut route, mut line) = (route.split(['/', ' ']), line.split(['/', ' ']));
    loop {
        match (route.next(), line.next()) {
            (None, None) => return true,
            (Some(wanted), Some(given)) if wanted == "*" || wanted == given => {}
            _ => return false,
        }
    }
}
