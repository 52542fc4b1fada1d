//! Shell sessions by key.

use std::cell::RefCell;
use std::collections::HashMap;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::rc::Rc;

use hermes_guest::protocol::guard::GuardState;
use hermes_guest::protocol::limit;
use hermes_guest::protocol::message::{OpenSession, Rejection, SessionOrigin, SessionView, ShellSessionKey};
use hermes_types::{ShellContext, ShellKind};
use serde_bytes::ByteBuf;
use tokio::sync::OnceCell;

use crate::shell::state::{ByteMap, ShellState, byte_pairs};
use crate::shell::{self, Shell};

/// One shell session. Its state is replaced as a whole or not at all.
#[derive(Debug)]
pub(crate) struct ShellSession {
    pub(crate) key: ShellSessionKey,
    pub(crate) state: RefCell<ShellState>,
    /// What of the state the gate must know; `None` after a change.
    context: RefCell<Option<Rc<ShellContext>>>,
    /// The variables of the session when it was new.
    new_env: RefCell<ByteMap>,
    /// Variables the host sent when it last opened the session.
    host_env: RefCell<ByteMap>,
    /// Sourced before the first command.
    pub(crate) init_files: Vec<ByteBuf>,
    /// Variables that the init files cannot set.
    pub(crate) protected_env: Vec<ByteBuf>,
    /// Set once the init files are sourced; earlier commands wait for it.
    pub(crate) initialized: OnceCell<()>,
}

#[derive(Debug, Default)]
pub(crate) struct ShellSessions {
    open: RefCell<HashMap<ShellSessionKey, Rc<ShellSession>>>,
}

impl ShellSessions {
    pub(crate) fn open(
        &self,
        base_env: &ByteMap,
        request: OpenSession,
    ) -> Result<(Rc<ShellSession>, SessionOrigin), Rejection> {
        let host_env: ByteMap = byte_pairs(request.env).collect();
        if let Ok(found) = self.get(&request.key) {
            found.update_host_env(base_env, host_env);
            return Ok((found, SessionOrigin::Found));
        }
        let mut open = self.open.borrow_mut();
        if request.key.0.len() > limit::MAX_SESSION_KEY_BYTES {
            return Err(Rejection::SessionKeyTooLarge);
        }
        if open.len() >= limit::MAX_SESSIONS {
            return Err(Rejection::TooManySessions);
        }
        let mut env = base_env.clone();
        env.extend(host_env.clone());
        let state = ShellState { cwd: normalize_dir(&request.cwd), env, ..ShellState::default() };
        let session = Rc::new(ShellSession {
            key: request.key.clone(),
            state: RefCell::new(state),
            context: RefCell::default(),
            new_env: RefCell::default(),
            host_env: RefCell::new(host_env),
            init_files: request.init_files,
            protected_env: request.protected_env,
            initialized: OnceCell::new(),
        });
        open.insert(request.key, session.clone());
        Ok((session, SessionOrigin::Created))
    }

    pub(crate) fn get(&self, key: &ShellSessionKey) -> Result<Rc<ShellSession>, Rejection> {
        self.open.borrow().get(key).cloned().ok_or(Rejection::NoSession)
    }

    pub(crate) fn count(&self) -> usize {
        self.open.borrow().len()
    }
}

impl ShellSession {
    /// Applies changed variables from the host, such as a renewed token. Variables that the session
    /// itself changed keep the session's value.
    fn update_host_env(&self, base: &ByteMap, host_env: ByteMap) {
        let before = self.host_env.replace(host_env);
        let host_env = self.host_env.borrow();
        let env = &mut self.state.borrow_mut().env;
        for name in before.keys().chain(host_env.keys()) {
            let (old, new) = (before.get(name), host_env.get(name));
            if old != new && env.get(name) == old.or_else(|| base.get(name)) {
                match new.or_else(|| base.get(name)) {
                    Some(value) => env.insert(name.clone(), value.clone()),
                    None => env.remove(name),
                };
                if let Some(value) = env.get(name) {
                    self.new_env.borrow_mut().insert(name.clone(), value.clone());
                }
                self.context.take();
            }
        }
    }

    pub(crate) fn host_env(&self) -> ByteMap {
        self.host_env.borrow().clone()
    }

    /// Marks the present state as that of a new session.
    pub(crate) fn set_new_state(&self) {
        self.new_env.replace(self.state.borrow().env.clone());
        self.context.take();
    }

    /// Makes the changes of a command, see [`ShellState::apply_changes`].
    pub(crate) fn apply_changes(&self, before: &ShellState, after: ShellState) {
        if !before.has_same_meaning(&after) {
            self.context.take();
        }
        self.state.borrow_mut().apply_changes(before, after);
    }

    /// The state by which the gate must judge the next command.
    pub(crate) fn context(&self) -> Rc<ShellContext> {
        let state = self.state.borrow();
        let kind = match shell::find_shell(state.env.get(b"PATH".as_slice()).map(Vec::as_slice)) {
            Some(Shell::Sh(_)) => ShellKind::Sh,
            Some(Shell::Bash(_)) | None => ShellKind::Bash,
        };
        let mut context = self.context.borrow_mut();
        match &*context {
            Some(known) if known.shell == kind => known.clone(),
            _ => context.insert(Rc::new(state.context(kind, &self.new_env.borrow()))).clone(),
        }
    }

    /// Shows the session to a client that knows the context with this digest.
    pub(crate) fn view(&self, origin: SessionOrigin, known: Option<&str>, guard: GuardState) -> SessionView {
        let context = self.context();
        let shell = (known != Some(context.digest.as_str())).then(|| ShellContext::clone(&context));
        SessionView { cwd: ByteBuf::from(self.state.borrow().cwd.clone()), shell, origin, guard }
    }
}

/// Normalizes a directory as a shell does, so that a command that does not change directory is not
/// recorded as a change.
fn normalize_dir(cwd: &[u8]) -> Vec<u8> {
    let has_dots = cwd.split(|byte| *byte == b'/').any(|part| part == b"." || part == b"..");
    let is_simple =
        !has_dots && (cwd.len() == 1 || !cwd.ends_with(b"/")) && memchr::memmem::find(cwd, b"//").is_none();
    if is_simple {
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
    fn a_new_value_from_the_host_does_not_override_the_session() {
        let variable = |name: &str, value: &str| (ByteBuf::from(name), ByteBuf::from(value));
        let base = byte_pairs(vec![variable("BASE", "of the guest")]).collect();
        let sessions = ShellSessions::default();
        let open = |env: &[(&str, &str)]| {
            let env = env.iter().map(|(name, value)| variable(name, value)).collect();
            let (key, cwd) = (ShellSessionKey::from("s"), ByteBuf::from("/"));
            sessions
                .open(
                    &base,
                    OpenSession {
                        key,
                        cwd,
                        env,
                        init_files: Vec::new(),
                        protected_env: Vec::new(),
                        guard: None,
                    },
                )
                .unwrap()
        };
        let first = [("KEPT", "1"), ("RENEWED", "1"), ("TAKEN", "1"), ("CHANGED", "1"), ("BASE", "given")];
        let (session, origin) = open(&first);
        assert_eq!(origin, SessionOrigin::Created);
        let set = |name: &str, value: &str| {
            session.state.borrow_mut().env.insert(name.into(), value.into());
        };
        set("CHANGED", "by the session");
        set("OWN", "of the session");
        let env_lines = || {
            let env = session.state.borrow().env.clone();
            let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
            env.into_iter().map(|(name, value)| format!("{}={}", text(name), text(value))).collect::<Vec<_>>()
        };
        let second = [("KEPT", "1"), ("RENEWED", "2"), ("CHANGED", "2"), ("NEW", "2"), ("OWN", "2")];
        assert_eq!(open(&second).1, SessionOrigin::Found);
        let expected = [
            "BASE=of the guest", "CHANGED=by the session", "KEPT=1", "NEW=2", "OWN=of the session",
            "RENEWED=2",
        ];
        assert_eq!(env_lines(), expected);
        // The same values change nothing, not even a variable that the session removed.
        session.state.borrow_mut().env.remove(b"NEW".as_slice());
        open(&second);
        assert!(!env_lines().contains(&"NEW=2".to_owned()), "{:?}", env_lines());
    }
}
