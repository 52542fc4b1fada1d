//! Faults that a test injects.

use serde_json::Value;

/// A fault in the next calls of a route.
///
/// A route is a method and a path without `/api/v10`, with `*` for one segment, as in
/// `POST /channels/*/messages`.
#[derive(Debug, Clone, PartialEq)]
pub enum InjectedFault {
    RateLimit {
        /// In seconds.
        retry_after: f64,
        /// Whether it applies to all routes.
        global: bool,
    },
    /// Does nothing and responds with this status.
    Fail(u16),
    /// Performs the request, but drops the connection before the response.
    LoseResponse,
    /// Does nothing and drops the connection.
    Disconnect,
    /// Drops the connection and performs the request at [`super::DiscordServer::deliver_delayed`].
    Delay,
}

#[derive(Debug)]
pub(super) struct DelayedRequest {
    pub(super) method: String,
    pub(super) path: String,
    pub(super) body: Value,
}

#[derive(Debug, Default)]
pub(super) struct InjectedFaults {
    pub(super) rules: Vec<(String, u32, InjectedFault)>,
    /// Requests get no response.
    pub(super) stalled: bool,
    /// New websockets get no data.
    pub(super) silent: bool,
    pub(super) delayed: Vec<DelayedRequest>,
    /// The bot may not create threads.
    pub(super) no_threads: bool,
    /// A thread does not get the id of its message.
    pub(super) separate_thread_ids: bool,
}

impl InjectedFaults {
    /// The fault for this call, which counts as used.
    pub(super) fn take_next(&mut self, line: &str) -> Option<InjectedFault> {
        let at = self.rules.iter().position(|(route, ..)| matches(route, line))?;
        let (_, left, fault) = self.rules.get_mut(at)?;
        *left -= 1;
        let (left, fault) = (*left, fault.clone());
        if left == 0 {
            self.rules.remove(at);
        }
        Some(fault)
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
