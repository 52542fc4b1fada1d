//! Sessions by their keys.

use std::cell::RefCell;
use std::collections::HashMap;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::rc::Rc;

use hermes_guest::protocol::limit;
use hermes_guest::protocol::message::{
    Counted, Fault, Measured, OpenSession, Origin, SessionKey, SessionView,
};
use serde_bytes::ByteBuf;
use tokio::sync::OnceCell;

use crate::guest::Variable;
use crate::shell::state::{Map, State};

/// One session. Its state is replaced as a whole or not at all.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) key: SessionKey,
    pub(crate) state: RefCell<State>,
    /// The variables that the host gave when it last opened the session.
    given: RefCell<Map>,
    /// Files to source before the first command.
    pub(crate) init: Vec<ByteBuf>,
    /// Variables that those files cannot set.
    pub(crate) withheld: Vec<ByteBuf>,
    /// Set once the files were sourced; whoever comes before that waits.
    pub(crate) ready: OnceCell<()>,
}

#[derive(Debug, Default)]
pub(crate) struct Sessions {
    open: RefCell<HashMap<SessionKey, Rc<Session>>>,
}

impl Sessions {
    pub(crate) fn open(
        &self,
        base_env: &[Variable],
        request: OpenSession,
    ) -> Result<(Rc<Session>, Origin), Fault> {
        let given: Map = bytes(request.env).collect();
        if let Ok(found) = self.get(&request.key) {
            found.give(base_env, given);
            return Ok((found, Origin::Found));
        }
        let mut open = self.open.borrow_mut();
        if request.key.0.len() > limit::SESSION_KEY {
            return Err(Fault::TooLarge { what: Measured::SessionKey, limit: limit::SESSION_KEY as u64 });
        }
        if open.len() >= limit::SESSIONS {
            return Err(Fault::TooMany { what: Counted::Sessions, limit: limit::SESSIONS as u64 });
        }
        let env = bytes(base_env.to_vec()).chain(given.clone()).collect();
        let state = State { cwd: plain(&request.cwd), env, ..State::default() };
        let session = Rc::new(Session {
            key: request.key.clone(),
            state: RefCell::new(state),
            given: RefCell::new(given),
            init: request.init,
            withheld: request.withheld,
            ready: OnceCell::new(),
        });
        open.insert(request.key, session.clone());
        Ok((session, Origin::Created))
    }

    pub(crate) fn get(&self, key: &SessionKey) -> Result<Rc<Session>, Fault> {
        self.open.borrow().get(key).cloned().ok_or(Fault::NoSession)
    }

    pub(crate) fn close(&self, key: &SessionKey) -> Result<(), Fault> {
        self.open.borrow_mut().remove(key).map(drop).ok_or(Fault::NoSession)
    }

    pub(crate) fn count(&self) -> usize {
        self.open.borrow().len()
    }
}

impl Session {
    /// Takes other values from the host, such as a token that was renewed. What the session itself has changed since
    /// is its own.
    fn give(&self, base_env: &[Variable], given: Map) {
        let base: Map = bytes(base_env.to_vec()).collect();
        let before = self.given.replace(given);
        let given = self.given.borrow();
        let env = &mut self.state.borrow_mut().env;
        for name in before.keys().chain(given.keys()) {
            let (old, new) = (before.get(name), given.get(name));
            if old != new && env.get(name) == old.or_else(|| base.get(name)) {
                match new.or_else(|| base.get(name)) {
                    Some(value) => env.insert(name.clone(), value.clone()),
                    None => env.remove(name),
                };
            }
        }
    }

    /// The variables that the host gave.
    pub(crate) fn given(&self) -> Map {
        self.given.borrow().clone()
    }

    pub(crate) fn view(&self, origin: Origin) -> SessionView {
        let state = self.state.borrow();
        SessionView {
            cwd: ByteBuf::from(state.cwd.clone()),
            env: state
                .env
                .iter()
                .map(|(name, value)| (ByteBuf::from(name.clone()), ByteBuf::from(value.clone())))
                .collect(),
            functions: state.functions.keys().cloned().map(ByteBuf::from).collect(),
            aliases: state.aliases.keys().cloned().map(ByteBuf::from).collect(),
            origin,
        }
    }
}

fn bytes(variables: Vec<Variable>) -> impl Iterator<Item = (Vec<u8>, Vec<u8>)> {
    variables.into_iter().map(|(name, value)| (name.into_vec(), value.into_vec()))
}

/// A directory as a shell would call it, so that a command that does not move is not seen as moving.
fn plain(cwd: &[u8]) -> Vec<u8> {
    let roundabout = cwd.split(|byte| *byte == b'/').any(|part| part == b"." || part == b"..");
    let simple =
        !roundabout && (cwd.len() == 1 || !cwd.ends_with(b"/")) && memchr::memmem::find(cwd, b"//").is_none();
    if simple {
        return cwd.to_vec();
    }
    match std::fs::canonicalize(Path::new(std::ffi::OsStr::from_bytes(cwd))) {
        Ok(path) => path.into_os_string().into_vec(),
        Err(_missing) => cwd.to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_value_from_the_host_replaces_its_own_and_not_the_sessions() {
        let variable = |name: &str, value: &str| (ByteBuf::from(name), ByteBuf::from(value));
        let base = [variable("BASE", "of the place")];
        let sessions = Sessions::default();
        let open = |env: &[(&str, &str)]| {
            let env = env.iter().map(|(name, value)| variable(name, value)).collect();
            let (key, cwd) = (SessionKey::from("s"), ByteBuf::from("/"));
            sessions
                .open(&base, OpenSession { key, cwd, env, init: Vec::new(), withheld: Vec::new() })
                .unwrap()
        };
        let first = [("KEPT", "1"), ("RENEWED", "1"), ("TAKEN", "1"), ("CHANGED", "1"), ("BASE", "given")];
        let (session, origin) = open(&first);
        assert_eq!(origin, Origin::Created);
        let set = |name: &str, value: &str| {
            session.state.borrow_mut().env.insert(name.into(), value.into());
        };
        set("CHANGED", "by the session");
        set("OWN", "of the session");
        let seen = || {
            let env = session.state.borrow().env.clone();
            let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
            env.into_iter().map(|(name, value)| format!("{}={}", text(name), text(value))).collect::<Vec<_>>()
        };
        let second = [("KEPT", "1"), ("RENEWED", "2"), ("CHANGED", "2"), ("NEW", "2"), ("OWN", "2")];
        assert_eq!(open(&second).1, Origin::Found);
        let expected = [
            "BASE=of the place", "CHANGED=by the session", "KEPT=1", "NEW=2", "OWN=of the session",
            "RENEWED=2",
        ];
        assert_eq!(seen(), expected);
        // The same again changes nothing, even what the session has taken away.
        session.state.borrow_mut().env.remove(b"NEW".as_slice());
        open(&second);
        assert!(!seen().contains(&"NEW=2".to_owned()), "{:?}", seen());
    }
}
