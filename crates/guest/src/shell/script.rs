//! Generates the scripts that a shell runs.
//!
//! The argument of `-c` is short and the same for every command: source the script, then evaluate
//! the command. The command is evaluated outside the script, so that messages name `bash: line 1`
//! as for any `bash -c`.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use hermes_types::shell_quote;
use hermes_types::text::shell_quote_bytes;

use super::state::ShellState;

/// Terminates a dump; a dump without it is incomplete.
pub(super) const DUMP_END: &[u8] = b"end\0";

/// Memory files that a shell reads and writes; they stay open until it exits.
pub(crate) struct ShellFiles {
    pub(crate) script: OwnedFd,
    /// Set if the shell writes its state.
    pub(crate) state: Option<OwnedFd>,
    /// In a view, the shell cannot open descriptors of the guest.
    pub(crate) are_inherited: bool,
}

/// The numbers of inherited files, which few scripts use. Programs inherit the second one from the
/// shell, which needs it until it exits and cannot close it for its children only. The gate judges
/// the next command by the state that it holds then.
const SCRIPT_NUMBER: i32 = 241;
const STATE_NUMBER: i32 = 242;

impl ShellFiles {
    /// The descriptors that the shell inherits, with their numbers.
    pub(crate) fn inherited(&self) -> io::Result<Vec<(OwnedFd, i32)>> {
        let files = [(Some(&self.script), SCRIPT_NUMBER), (self.state.as_ref(), STATE_NUMBER)];
        let files = files.into_iter().filter(|_| self.are_inherited);
        files.filter_map(|(file, number)| Some(file?.try_clone().map(|file| (file, number)))).collect()
    }

    fn script_path(&self) -> String {
        self.path(&self.script, SCRIPT_NUMBER)
    }

    fn state_path(&self) -> Option<String> {
        self.state.as_ref().map(|state| self.path(state, STATE_NUMBER))
    }

    /// The path under which the shell opens a file.
    fn path(&self, file: &OwnedFd, number: i32) -> String {
        if self.are_inherited {
            format!("/proc/self/fd/{number}")
        } else {
            format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd())
        }
    }
}

/// The argument of `-c` for bash.
pub(crate) fn bash_argument(files: &ShellFiles) -> String {
    let script = files.script_path();
    format!("\\builtin . {script} || \\builtin exit 126; \\builtin eval \"$__hermes_command\"")
}

/// The argument of `-c` for a POSIX shell.
pub(crate) fn sh_argument(files: &ShellFiles) -> String {
    let script = files.script_path();
    format!(". {script} || exit 126; eval \"$__hermes_command\"")
}

/// The script that bash sources first.
pub(crate) fn bash_script(state: &ShellState, files: &ShellFiles, command: &[u8]) -> Vec<u8> {
    let mut script = b"shopt -s expand_aliases\n".to_vec();
    if files.are_inherited {
        // Bash has read all of it, and programs must not inherit it. Behind `builtin`, bash would
        // open it again.
        script.extend_from_slice(format!("\\exec {SCRIPT_NUMBER}<&-\n").as_bytes());
    }
    for (name, value) in &state.aliases {
        add_line(&mut script, "alias -- ", &[name, b"=".as_slice(), value].concat(), "");
    }
    for (name, function) in &state.functions {
        // One by one: a function that bash prints but cannot parse does not affect the others.
        add_line(&mut script, "\\builtin eval ", &function.text, " 2>/dev/null");
        if function.is_exported {
            add_line(&mut script, "\\builtin export -f -- ", name, "");
        }
    }
    if let Some(out) = files.state_path() {
        let dump = bash_dump(&out);
        let mentions = |word: &[u8]| {
            let texts = state.functions.values().map(|function| function.text.as_slice());
            texts.chain([command]).any(|text| memchr::memmem::find(text, word).is_some())
        };
        if mentions(b"trap") {
            script.extend_from_slice(trap_function(&dump).as_bytes());
        }
        add_line(&mut script, "\\builtin trap ", dump.as_bytes(), " EXIT");
        if mentions(b"exec") {
            // `exec` runs no exit trap, so the state is written just before it.
            let before = format!("case $BASH_COMMAND$BASH_SUBSHELL in *exec*0) {dump} ;; esac");
            add_line(&mut script, "\\builtin trap ", before.as_bytes(), " DEBUG");
        }
    }
    assign_command(&mut script, b"\\builtin unset -v __hermes_command; ", command);
    script
}

/// The script that sh sources first. It keeps only directory and exports.
pub(crate) fn sh_script(files: &ShellFiles, command: &[u8]) -> Vec<u8> {
    let mut script = Vec::new();
    if let Some(out) = files.state_path() {
        let dump = format!(
            "{{ {{ pwd; printf '\\000'; export -p; printf '\\000end\\000'; }} >|{out}; }} 2>/dev/null"
        );
        add_line(&mut script, "trap ", dump.as_bytes(), " EXIT");
    }
    assign_command(&mut script, b"unset __hermes_command; ", command);
    script
}

/// Adds a line with one quoted word.
fn add_line(script: &mut Vec<u8>, before: &str, word: &[u8], after: &str) {
    script.extend_from_slice(before.as_bytes());
    script.extend(shell_quote_bytes(word));
    script.extend_from_slice(after.as_bytes());
    script.push(b'\n');
}

/// The command's own first line unsets the variable, before the command can see it.
fn assign_command(script: &mut Vec<u8>, prefix: &[u8], command: &[u8]) {
    add_line(script, "__hermes_command=", &[prefix, command].concat(), "");
}

/// Writes the state with builtins only: no fork, no name that a user's alias could replace, no
/// dependency on shell options, and no changed option, because after a plain `exec >file` the
/// command continues.
fn bash_dump(out: &str) -> String {
    format!(
        "{{ \\builtin declare -F >|{out}; \\builtin mapfile -t __hermes_names <{out}; {{ \
         \\builtin pwd; \\builtin printf '\\0'; \\builtin export -p; \\builtin printf '\\0'; \
         \\builtin alias -p; \\builtin printf '\\0'; \
         for __hermes_name in ${{__hermes_names[@]+\"${{__hermes_names[@]}}\"}}; do \
         \\builtin printf '%s\\0' \"$__hermes_name\"; \
         \\builtin declare -f \"${{__hermes_name##* }}\"; \\builtin printf '\\0'; done; \
         \\builtin printf 'end\\0'; }} >|{out}; \
         \\builtin unset -v __hermes_names __hermes_name; }} 2>/dev/null || \\builtin :"
    )
}

/// Allows a command to set its own EXIT trap in addition to ours. State is written before the trap
/// runs, in case the trap ends the shell, and after it.
fn trap_function(dump: &str) -> String {
    let run = "(\\builtin exit $__hermes_code); \\builtin eval \"$__hermes_trap\"";
    let both = shell_quote(&format!("__hermes_code=$?; {dump}; {run}; {dump}"));
    let ours = shell_quote(dump);
    format!(
        "trap () {{\n\
         \\builtin trap \"$@\" || \\builtin return\n\
         case \"$BASH_SUBSHELL $1 $* \" in 0\\ -[lp]*) ;; 0\\ *\\ EXIT\\ *|0\\ *\\ 0\\ *)\n\
         __hermes_trap=$(\\builtin trap -p EXIT)\n\
         \\builtin eval \"\\builtin set -- $__hermes_trap\"\n\
         __hermes_trap=${{3-}}\n\
         if [[ $__hermes_trap ]]; then \\builtin trap {both} EXIT; else \\builtin trap {ours} EXIT; fi ;;\n\
         esac\n\
         }}\n"
    )
}

/// Our own function, which is not part of the session.
pub(crate) const TRAP_FUNCTION: &[u8] = b"trap";
