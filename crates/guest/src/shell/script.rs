//! Generates the scripts that a shell runs.
//!
//! The argument of `-c` is short and the same for every command: source the script, then evaluate
//! the command. The command is evaluated outside the script, so that messages name `bash: line 1`
//! as for any `bash -c`.

use std::os::fd::{AsRawFd, BorrowedFd};

use hermes_types::shell_quote;
use hermes_types::text::shell_quote_bytes;

use super::state::ShellState;

/// Terminates a dump; a dump without it is incomplete.
pub(super) const DUMP_END: &[u8] = b"end\0";

pub(crate) struct ScriptFiles<'a> {
    pub(crate) script: BorrowedFd<'a>,
    pub(crate) state: Option<BorrowedFd<'a>>,
}

/// The argument of `-c` for bash.
pub(crate) fn bash_argument(files: &ScriptFiles<'_>) -> String {
    let script = descriptor_path(files.script);
    format!("\\builtin . {script} || \\builtin exit 126; \\builtin eval \"$__hermes_command\"")
}

/// The argument of `-c` for a POSIX shell.
pub(crate) fn sh_argument(files: &ScriptFiles<'_>) -> String {
    let script = descriptor_path(files.script);
    format!(". {script} || exit 126; eval \"$__hermes_command\"")
}

/// The script that bash sources first.
pub(crate) fn bash_script(state: &ShellState, files: &ScriptFiles<'_>, command: &[u8]) -> Vec<u8> {
    let mut script = b"shopt -s expand_aliases\n".to_vec();
    for (name, value) in &state.aliases {
        script.extend_from_slice(b"alias -- ");
        script.extend(shell_quote_bytes(&[name, b"=".as_slice(), value].concat()));
        script.push(b'\n');
    }
    for (name, function) in &state.functions {
        // One by one: a function that bash prints but cannot parse does not affect the others.
        script.extend_from_slice(b"\\builtin eval ");
        script.extend(shell_quote_bytes(&function.text));
        script.extend_from_slice(b" 2>/dev/null\n");
        if function.is_exported {
            script.extend_from_slice(b"\\builtin export -f -- ");
            script.extend(shell_quote_bytes(name));
            script.push(b'\n');
        }
    }
    if let Some(out) = files.state.map(descriptor_path) {
        let dump = bash_dump(&out);
        let mentions = |word: &[u8]| {
            let texts = state.functions.values().map(|function| function.text.as_slice());
            texts.chain([command]).any(|text| memchr::memmem::find(text, word).is_some())
        };
        if mentions(b"trap") {
            script.extend_from_slice(trap_function(&dump).as_bytes());
        }
        script.extend_from_slice(b"\\builtin trap ");
        script.extend(shell_quote_bytes(dump.as_bytes()));
        script.extend_from_slice(b" EXIT\n");
        if mentions(b"exec") {
            // `exec` runs no exit trap, so the state is written just before it.
            let before = format!("case $BASH_COMMAND$BASH_SUBSHELL in *exec*0) {dump} ;; esac");
            script.extend_from_slice(b"\\builtin trap ");
            script.extend(shell_quote_bytes(before.as_bytes()));
            script.extend_from_slice(b" DEBUG\n");
        }
    }
    assign_command(&mut script, b"\\builtin unset -v __hermes_command; ", command);
    script
}

/// The script that sh sources first. It keeps only directory and exports.
pub(crate) fn sh_script(files: &ScriptFiles<'_>, command: &[u8]) -> Vec<u8> {
    let mut script = Vec::new();
    if let Some(out) = files.state.map(descriptor_path) {
        let dump = format!(
            "{{ {{ pwd; printf '\\000'; export -p; printf '\\000end\\000'; }} >|{out}; }} 2>/dev/null"
        );
        script.extend_from_slice(b"trap ");
        script.extend(shell_quote_bytes(dump.as_bytes()));
        script.extend_from_slice(b" EXIT\n");
    }
    assign_command(&mut script, b"unset __hermes_command; ", command);
    script
}

/// The command's own first line unsets the variable, before the command can see it.
fn assign_command(script: &mut Vec<u8>, prefix: &[u8], command: &[u8]) {
    script.extend_from_slice(b"__hermes_command=");
    script.extend(shell_quote_bytes(&[prefix, command].concat()));
    script.push(b'\n');
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

/// The path under which the shell opens a descriptor of the guest.
fn descriptor_path(fd: BorrowedFd<'_>) -> String {
    format!("/proc/{}/fd/{}", std::process::id(), fd.as_raw_fd())
}
