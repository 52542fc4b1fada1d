//! Threads that start the programs of views in Landlock domains.
//!
//! A thread in a domain cannot leave it, and the processes that it starts inherit it. A program in
//! a domain can signal only programs of the same domain, or of one nested in it. If each program had
//! a domain of its own, no command could end a server that an earlier command started. So all
//! programs of a guest are started by the same two threads:
//!
//! | thread | its programs |
//! |---|---|
//! | `signals` | cannot signal programs outside |
//! | `all`, in a domain nested in that of `signals` | in addition, cannot connect to abstract sockets outside |

use std::io;
use std::os::fd::AsFd;
use std::sync::mpsc;
use std::thread;

use hermes_types::ProtectedClass;

use crate::sys;

/// The classes of sockets that may have no path.
const SOCKET_CLASSES: [ProtectedClass; 2] =
    [ProtectedClass::DesktopSession, ProtectedClass::TerminalSessions];

/// One of the threads. It ends with the guest, because the kernel ends the programs of a thread that
/// ends.
#[derive(Debug, Clone)]
pub(crate) struct ScopedThread(mpsc::Sender<ThreadTask>);

type ThreadTask = Box<dyn FnOnce() + Send>;

#[derive(Debug, Clone)]
pub(super) struct ScopedThreads {
    signals: ScopedThread,
    all: ScopedThread,
}

impl ScopedThreads {
    /// Starts the threads. None if the kernel has no such domains, before Linux 6.12.
    pub(super) fn start() -> io::Result<Option<Self>> {
        if !sys::landlock_abi().is_ok_and(|abi| abi >= sys::LANDLOCK_ABI_WITH_SCOPES) {
            return Ok(None);
        }
        let signals = ScopedThread::start(sys::LANDLOCK_SCOPE_SIGNAL)?;
        // Started by the other thread, so that its domain is nested.
        let all = signals.run(|| ScopedThread::start(sys::LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET))??;
        Ok(Some(Self { signals, all }))
    }

    /// The thread for programs that may use these classes; none if they may signal any program.
    pub(super) fn thread(&self, allowed: &[ProtectedClass]) -> Option<&ScopedThread> {
        if allowed.contains(&ProtectedClass::OtherPrograms) {
            None
        } else if SOCKET_CLASSES.iter().any(|class| allowed.contains(class)) {
            Some(&self.signals)
        } else {
            Some(&self.all)
        }
    }
}

impl ScopedThread {
    fn start(scope: u64) -> io::Result<Self> {
        let (sender, tasks) = mpsc::channel::<ThreadTask>();
        let (entered, is_entered) = mpsc::sync_channel(1);
        thread::Builder::new().name("programs".to_owned()).spawn(move || {
            let result = enter_domain(scope);
            let is_ready = result.is_ok();
            // The caller waits for it.
            entered.send(result).ok();
            while is_ready && let Ok(task) = tasks.recv() {
                task();
            }
        })?;
        is_entered.recv().map_err(io::Error::other)??;
        Ok(Self(sender))
    }

    /// Runs a function on the thread, and waits for its result.
    pub(crate) fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
        let (sender, result) = mpsc::sync_channel(1);
        let task = move || drop(sender.send(work()));
        self.0.send(Box::new(task)).map_err(|_ended| io::Error::other("the thread has ended"))?;
        result.recv().map_err(io::Error::other)
    }
}

fn enter_domain(scope: u64) -> io::Result<()> {
    if !rustix::process::geteuid().is_root() {
        // A view has no user to whom a program could change.
        rustix::thread::set_no_new_privs(true)?;
    }
    let ruleset = sys::create_landlock_ruleset(scope)?;
    sys::enter_landlock_domain(ruleset.as_fd())
}
