//! Retries, recoveries and fallbacks around single attempts.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::album::Sight;
use crate::attempt::{Failed, attempt};
use crate::draft::Listener;
use crate::endpoint::{Endpoint, Retries};
use crate::error::{Class, Error, Fault};
use crate::eyes::{Eyes, View};
use crate::reply::{Event, Prompt, Reply};
use crate::transport::{Proxy, Transport};
use crate::wire::Manner;

/// How often a connection that was lost is made again at once.
const RECONNECTS: u32 = 2;
/// How many servers and sessions are remembered.
const MOST_REMEMBERED: usize = 256;
/// Less room than this is no room for an answer.
const LEAST_ROOM: u64 = 256;

/// Talks to models. There is one for a process; clones share connections and what was learned about servers.
#[derive(Debug, Clone, Default)]
pub struct Client {
    pub(crate) shared: Arc<Shared>,
}

#[derive(Debug, Default)]
pub(crate) struct Shared {
    pub(crate) transport: Transport,
    manners: Mutex<HashMap<String, Manner>>,
    eyes: Mutex<HashMap<String, Eyes>>,
    /// Sessions whose earlier thoughts a server refused, which it would do again.
    forgetful: Mutex<Vec<String>>,
    pub(crate) windows: Mutex<HashMap<String, crate::window::Window>>,
}

impl Client {
    /// A client that reaches servers by this way. It does nothing yet, so this takes no time.
    pub fn new(proxy: Proxy) -> Self {
        Self { shared: Arc::new(Shared { transport: Transport::new(proxy), ..Shared::default() }) }
    }

    /// Has the conversation continued by the first model of the chain that can. Dropping the future ends everything at once.
    pub async fn complete(
        &self,
        chain: &[Endpoint],
        prompt: &Prompt<'_>,
        event: &mut (dyn FnMut(Event) + Send),
    ) -> Result<Reply, Error> {
        let Some(mut endpoint) = chain.first() else { return Err(Error::NoEndpoint) };
        let mut rest = chain.get(1..).unwrap_or_default();
        loop {
            // The same model again is no fallback.
            while let Some((_, after)) = rest.split_first().filter(|(next, _)| next.is_same(endpoint)) {
                rest = after;
            }
            let fault = match self.ask(endpoint, prompt, rest.is_empty(), event).await {
                Ok(reply) => return Ok(reply),
                Err(fault) => fault,
            };
            tracing::warn!(provider = endpoint.provider, model = endpoint.model, class = ?fault.class, "{fault}");
            match rest.split_first() {
                Some((next, after)) if fault.class.falls_back() => {
                    event(Event::Fallback { from: name(endpoint), to: name(next) });
                    endpoint = next;
                    rest = after;
                }
                _ => {
                    let (provider, model) = (endpoint.provider.clone(), endpoint.model.clone());
                    return Err(Error::Failed { provider, model, fault });
                }
            }
        }
    }

    /// Asks one model until it answers or there is no point in asking again.
    async fn ask(
        &self,
        endpoint: &Endpoint,
        prompt: &Prompt<'_>,
        is_last: bool,
        event: Listener<'_>,
    ) -> Result<Reply, Fault> {
        let mut manner = self.manner(endpoint, prompt.session);
        let mut view = self.eyes(endpoint, |eyes| View::new(endpoint, prompt.messages, eyes));
        let is_auto = matches!(prompt.sight, Sight::Auto(_));
        let mut failed = 0;
        let mut reconnects = 0;
        let mut partial = None;
        loop {
            let muted = partial.is_some();
            let pictures = view.load(prompt.sight).await;
            let tried =
                attempt(&self.shared.transport, endpoint, prompt, &manner, pictures, muted, event).await;
            let Failed { fault, partial: shown } = match tried {
                Ok(reply) => {
                    self.eyes(endpoint, |eyes| eyes.learn(&view));
                    return Ok(reply);
                }
                Err(failed) => failed,
            };
            // Words were shown: they are kept, and the model is asked to go on by whoever asked. Only if a call was
            // arriving is it worth asking for the whole again, without showing the words twice.
            if let Some(shown) = shown {
                if !shown.open_call {
                    return Ok(shown.reply);
                }
                partial.get_or_insert(shown.reply);
            }
            if let Some(better) = recovered(&manner, &fault) {
                tracing::info!(provider = endpoint.provider, class = ?fault.class, "asking in another way: {fault}");
                self.learn(endpoint, prompt.session, &better);
                manner = better;
                continue;
            }
            if is_auto && fault.may_be_about_images() && view.narrow(fault.class) {
                tracing::info!(provider = endpoint.provider, "asking with fewer pictures: {fault}");
                continue;
            }
            if fault.class == Class::Dropped && reconnects < RECONNECTS {
                reconnects += 1;
                continue;
            }
            if let Some(reply) = partial.take() {
                return Ok(reply);
            }
            failed += 1;
            let again = fault.class.is_passing() && failed < endpoint.retries.attempts;
            if !again || (fault.class.falls_back_at_once() && !is_last) {
                let fault = settled(fault);
                // Another model may see what this one cannot answer.
                let is_final = is_last || !fault.class.falls_back();
                if is_auto && is_final && fault.may_pass_without_images() && view.close() {
                    tracing::info!(provider = endpoint.provider, "asking without pictures: {fault}");
                    continue;
                }
                return Err(fault);
            }
            let wait = wait(&endpoint.retries, &fault, failed);
            event(Event::Retrying { why: fault.message.clone(), wait, attempt: failed });
            tokio::time::sleep(wait).await;
        }
    }

    /// How to speak to this server, as far as we know.
    pub(crate) fn manner(&self, endpoint: &Endpoint, session: &str) -> Manner {
        let manners = self.shared.manners.lock().unwrap_or_else(PoisonError::into_inner);
        let mut manner = manners.get(&key(endpoint)).cloned().unwrap_or_default();
        drop(manners);
        let forgetful = self.shared.forgetful.lock().unwrap_or_else(PoisonError::into_inner);
        manner.forget_thoughts = forgetful.iter().any(|known| known == session);
        manner
    }

    fn learn(&self, endpoint: &Endpoint, session: &str, manner: &Manner) {
        if manner.forget_thoughts {
            let mut forgetful = self.shared.forgetful.lock().unwrap_or_else(PoisonError::into_inner);
            if forgetful.len() >= MOST_REMEMBERED {
                forgetful.remove(0);
            }
            forgetful.push(session.to_owned());
        }
        let lasting = Manner { cap: None, forget_thoughts: false, ..manner.clone() };
        self.remember(endpoint, |known| *known = lasting);
    }

    /// Looks at what is known of a server's eyes, or changes it.
    fn eyes<T>(&self, endpoint: &Endpoint, with: impl FnOnce(&mut Eyes) -> T) -> T {
        let mut eyes = self.shared.eyes.lock().unwrap_or_else(PoisonError::into_inner);
        if eyes.len() >= MOST_REMEMBERED {
            eyes.clear();
        }
        with(eyes.entry(key(endpoint)).or_default())
    }

    /// Changes what is known about a server.
    pub(crate) fn remember(&self, endpoint: &Endpoint, change: impl FnOnce(&mut Manner)) {
        let mut manners = self.shared.manners.lock().unwrap_or_else(PoisonError::into_inner);
        if manners.len() >= MOST_REMEMBERED {
            manners.clear();
        }
        change(manners.entry(key(endpoint)).or_default());
    }
}

/// What tells one model at one server from all others.
pub(crate) fn key(endpoint: &Endpoint) -> String {
    format!("{} {} {}", endpoint.api.word(), endpoint.base_url, endpoint.model)
}

fn name(endpoint: &Endpoint) -> String {
    format!("{} ({})", endpoint.model, endpoint.provider)
}

/// Another way to ask, if what the server did not like can be left out. Each can be left out only once, so this ends.
fn recovered(manner: &Manner, fault: &Fault) -> Option<Manner> {
    let mut better = manner.clone();
    match fault.class {
        Class::StreamUnsupported => better.whole = true,
        Class::Grammar => better.plain_schemas = true,
        Class::ReasoningRejected => better.forget_thoughts = true,
        Class::OutputCap if manner.cap.is_none() => {
            better.cap = Some(fault.room.filter(|room| *room >= LEAST_ROOM)?);
        }
        Class::Parameter => {
            let field = fault.parameter.as_deref()?.split('.').next()?;
            if !OPTIONAL.contains(&field) {
                return None;
            }
            better.without.insert(field.to_owned());
        }
        _ => return None,
    }
    (better != *manner).then_some(better)
}

/// The fields that a request can do without, or has another name for.
const OPTIONAL: &[&str] = &[
    "include", "max_completion_tokens", "max_tokens", "options", "output_config", "parallel_tool_calls",
    "prompt_cache_key", "reasoning", "reasoning_effort", "stream_options", "thinking", "usage",
];

/// No room for an answer means that the conversation is too long.
fn settled(mut fault: Fault) -> Fault {
    if fault.class == Class::OutputCap {
        fault.class = Class::ContextOverflow;
    }
    fault
}

/// How long to wait after so many failures: what the provider asked for, or twice as long each time, with some of it left to
/// chance so that not everybody comes back at once.
fn wait(retries: &Retries, fault: &Fault, failed: u32) -> Duration {
    if let Some(asked) = fault.retry_after {
        return asked;
    }
    let (first, longest) = match fault.class {
        Class::Malformed => (retries.first.mul_f32(2.5), retries.longest * 2),
        _ => (retries.first, retries.longest),
    };
    let wait = first.saturating_mul(2_u32.saturating_pow(failed.saturating_sub(1))).min(longest);
    let chance = getrandom::u32().map_or(0.0, |number| f64::from(number) / f64::from(u32::MAX));
    wait + wait.mul_f64(chance / 2.0)
}

#[cfg(test)]
mod tests {
    use hermes_types::{Digest, Image, ImageKind, Message};

    use super::*;
    use crate::endpoint::Api;

    #[test]
    fn waits_double_up_to_the_longest_with_half_left_to_chance() {
        let retries = Retries::default();
        let fault = Fault::new(Class::Server, "x");
        for (failed, seconds) in [(1, 2.0), (2, 4.0), (3, 8.0), (6, 60.0), (40, 60.0)] {
            let wait = wait(&retries, &fault, failed).as_secs_f64();
            assert!((seconds..=seconds * 1.5).contains(&wait), "{failed}: {wait}");
        }
        let asked = Fault { retry_after: Some(Duration::from_secs(7)), ..fault };
        assert_eq!(wait(&retries, &asked, 1), Duration::from_secs(7));
    }

    #[test]
    fn each_recovery_is_tried_once() {
        let fault = |class| Fault {
            room: Some(1000),
            parameter: Some("reasoning.effort".to_owned()),
            ..Fault::new(class, "x")
        };
        let classes = [
            Class::StreamUnsupported,
            Class::Grammar,
            Class::ReasoningRejected,
            Class::OutputCap,
            Class::Parameter,
        ];
        for class in classes {
            let better = recovered(&Manner::default(), &fault(class)).unwrap();
            assert_eq!(recovered(&better, &fault(class)), None, "{class:?}");
        }
        assert_eq!(recovered(&Manner::default(), &fault(Class::Format)), None);
        let essential = Fault { parameter: Some("messages".to_owned()), ..fault(Class::Parameter) };
        assert_eq!(recovered(&Manner::default(), &essential), None);
    }

    #[test]
    fn what_others_learned_about_pictures_meanwhile_is_kept() {
        let client = Client::default();
        let endpoint = Endpoint::new("x", Api::ChatCompletions, "http://h/v1".parse().unwrap(), "m");
        let image = Image { sha256: Digest::new([1; 32]), kind: ImageKind::Gif, size: 1 };
        let messages = [Message::User { text: String::new(), images: vec![image] }];
        let view = || client.eyes(&endpoint, |eyes| View::new(&endpoint, &messages, eyes));
        let manner = client.manner(&endpoint, "one");
        let mut other = view();
        assert!(other.narrow(Class::Format));
        client.eyes(&endpoint, |eyes| eyes.learn(&other));
        client.learn(&endpoint, "one", &Manner { whole: true, ..manner });
        assert!(client.manner(&endpoint, "one").whole);
        assert!(!view().narrow(Class::Format), "it is shown again");
    }
}
