//! Uses of dangerous modules that harm nothing.

use super::*;

/// Members of `importlib`, and of what it returns, that run code.
const LOADERS: &[&str] = &[
    "import_module", "spec_from_file_location", "spec_from_loader", "module_from_spec", "exec_module",
    "load_module", "SourceFileLoader", "SourcelessFileLoader", "ExtensionFileLoader", "LazyLoader",
    "machinery", "reload", "find_loader", "get_loader", "loader", "_bootstrap", "_bootstrap_external",
    "__dict__", "__import__",
];

/// Members of `importlib` that only look.
const FINDERS: &[&str] = &["importlib", "importlib.util", "importlib.util.find_spec"];

/// Members of Python's `socket` that reach no other machine by themselves.
const SOCKET_MEMBERS: &[&str] = &[
    "socket", "AF_INET", "AF_INET6", "AF_UNIX", "SOCK_STREAM", "SOCK_DGRAM", "SOL_SOCKET", "SO_REUSEADDR",
    "SO_REUSEPORT", "IPPROTO_TCP", "TCP_NODELAY", "SHUT_RD", "SHUT_WR", "SHUT_RDWR", "socketpair",
    "gethostname", "timeout", "error", "gaierror", "setdefaulttimeout",
];

/// Calls that name an address, and the index of the argument with it.
const ADDRESSED: &[(&str, usize)] = &[
    ("bind", 0),
    ("connect", 0),
    ("connect_ex", 0),
    ("create_server", 0),
    ("create_connection", 0),
    ("sendto", 1),
    ("gethostbyname", 0),
    ("getaddrinfo", 0),
];

impl Tokens {
    /// Leaves out the names of dangerous modules whose uses harm nothing.
    pub(super) fn drop_harmless(&self, names: &mut Vec<&str>) {
        if self.language != Language::Python {
            return;
        }
        let loads = |name: &&str| name.split('.').any(|member| LOADERS.contains(&member));
        if !names.iter().any(loads) {
            names.retain(|name| !FINDERS.contains(name));
        }
        let is_addressed = |at: &usize| ADDRESSED.iter().any(|(call, _)| self.name(*at).ends_with(call));
        if names.iter().any(|name| name.split('.').next() == Some("socket"))
            && (0..self.all.len()).filter(is_addressed).count() <= MAX_EFFECTS
            && (0..self.all.len()).all(|at| self.is_local_socket_use(at))
        {
            names.retain(|name| name.split('.').next() != Some("socket"));
        }
        // The file of the call is judged on its own.
        let is_plain = |name: &str| {
            let uses = || (0..self.all.len()).filter(|at| self.name(*at) == name);
            uses().count() <= MAX_EFFECTS && uses().all(|at| self.is_plain_change(at))
        };
        names.retain(|name| !matches!(*name, "os.chmod" | "os.symlink") || !is_plain(name));
    }

    /// Whether a name is none of sockets, or one that stays on this machine.
    fn is_local_socket_use(&self, at: usize) -> bool {
        let name = self.name(at);
        let (module, member) = name.split_once('.').unwrap_or((name, ""));
        let last = name.rsplit('.').next().unwrap_or_default();
        let addressed = ADDRESSED.iter().find(|(call, _)| *call == last && name.contains('.'));
        let is_known = match module {
            "socket" if member.is_empty() => {
                self.name(at.wrapping_sub(1)) != "from" && self.name(at + 1) != "as"
            }
            "socket" => SOCKET_MEMBERS.contains(&member) || addressed.is_some(),
            _ => !has_member(member, "socket") && !matches!(last, "sendmsg" | "sendmsg_afalg"),
        };
        let is_local = |(call, index): &(&str, usize)| {
            let arguments = self.arguments(at).unwrap_or_default();
            arguments.get(*index).is_some_and(|argument| self.is_local_address(argument, call))
        };
        is_known && addressed.is_none_or(is_local)
    }

    fn is_local_address(&self, argument: &[Token], call: &str) -> bool {
        match argument {
            [Sign('('), Text(host), Sign(','), ..] => LOOPBACK.contains(&host.as_str()),
            [Text(host)] if matches!(call, "gethostbyname" | "getaddrinfo") => {
                LOOPBACK.contains(&host.as_str())
            }
            [Name(own), Sign('('), Sign(')')] => own.ends_with(".getsockname"),
            // A text is the path of a local socket, which `bind` makes.
            argument if call == "bind" => self.value(argument).is_some_and(|path| {
                path.contains(|char: char| char.is_alphanumeric())
                    && !path.contains("..")
                    && (path.starts_with("/tmp/") || !path.starts_with(['/', '~']))
            }),
            _ => false,
        }
    }

    /// Whether a call gives a known file a mode that no other user may write with, or makes a link
    /// between two names below the working directory.
    fn is_plain_change(&self, at: usize) -> bool {
        let Some(arguments) = self.arguments(at) else { return false };
        let is_below = |path: &String| !path.starts_with(['/', '~']) && !path.contains("..");
        match (self.name(at), arguments.as_slice()) {
            ("os.chmod", [path, [Name(mode)]]) => {
                self.value(path).is_some()
                    && mode.len() == 5
                    && mode.starts_with("0o")
                    && mode.ends_with(['0', '1', '4', '5'])
            }
            ("os.symlink", [from, to]) => {
                self.value(from).as_ref().is_some_and(is_below)
                    && self.value(to).as_ref().is_some_and(is_below)
            }
            _ => false,
        }
    }

    /// Whether a name stands in the braces of an import: `const { spawnSync } = require(…)`.
    pub(super) fn is_imported(&self, at: usize) -> bool {
        let is_listed = |at: &usize| self.is_sign(*at, ",") || !matches!(self.name(*at), "" | "as");
        let end = (at..self.all.len()).find(|at| !is_listed(at)).unwrap_or_default();
        let start = (0..at).rev().find(|at| !is_listed(at)).unwrap_or(usize::MAX);
        self.language == Language::JavaScript
            && self.is_sign(start, "{")
            && self.is_sign(end, "}")
            && (self.name(end + 1) == "from"
                || (self.is_sign(end + 1, "=") && self.name(end + 2) == "require"))
    }
}
