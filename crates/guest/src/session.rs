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
use crate::shell::state::State;

/// One session. Its state is replaced as a whole or not at all.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) key: SessionKey,
    pub(crate) state: RefCell<State>,
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
        if let Ok(found) = self.get(&request.key) {
            return Ok((found, Origin::Found));
        }
        let mut open = self.open.borrow_mut();
        if request.key.0.len() > limit::SESSION_KEY {
            return Err(Fault::TooLarge { what: Measured::SessionKey, limit: limit::SESSION_KEY as u64 });
        }
        if open.len() >= limit::SESSIONS {
            return Err(Fault::TooMany { what: Counted::Sessions, limit: limit::SESSIONS as u64 });
        }
        let env = base_env.iter().cloned().chain(request.env);
        let state = State {
            cwd: plain(&request.cwd),
            env: env.map(|(name, value)| (name.into_vec(), value.into_vec())).collect(),
            ..State::default()
        };
        let session = Rc::new(Session {
            key: request.key.clone(),
            state: RefCell::new(state),
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
