//! Lines typed at the prompt: messages, `/commands` and `!commands`.

use hermes_session::{Surface, UserRole, command};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum InputLine {
    Empty,
    /// A message or command for the session.
    Session(String),
    /// A shell command for the session's environment.
    Shell(String),
    /// An incomplete line, and what is wrong with it.
    Invalid(&'static str),
}

pub(super) fn parse_line(line: &str) -> InputLine {
    let line = line.trim();
    match line.strip_prefix('!').map(str::trim) {
        _ if line.is_empty() => InputLine::Empty,
        Some("") => InputLine::Invalid("usage: !COMMAND, for example `!ls`"),
        Some(command) => InputLine::Shell(command.to_owned()),
        None => InputLine::Session(line.to_owned()),
    }
}

/// The list of commands for `/help`.
pub(super) fn help(commands: &[&command::CommandSpec]) -> String {
    let also = |aliases: &[&str]| match aliases {
        [] => String::new(),
        aliases => format!(" (also /{})", aliases.join(", /")),
    };
    let line = |usage: &str, summary: &str| format!("  {usage:32}{summary}\n");
    let lines =
        commands.iter().map(|spec| line(&spec.usage(), &format!("{}{}", spec.summary, also(spec.aliases))));
    let shell = line("!COMMAND", "run a shell command in the environment; the model does not see it");
    lines.chain([shell, "  End a line with \\ to continue it on the next one.".to_owned()]).collect()
}

/// The names of the commands, for completion.
pub(super) fn command_names() -> Vec<String> {
    command::offered(Surface::Terminal, UserRole::Owner).map(|spec| format!("/{}", spec.name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_for_the_session_or_for_the_shell() {
        let session = |text: &str| InputLine::Session(text.to_owned());
        let shell = |text: &str| InputLine::Shell(text.to_owned());
        let cases = [
            ("  ", InputLine::Empty),
            ("hello / there ", session("hello / there")),
            (" /exit ", session("/exit")),
            ("what does !x do", session("what does !x do")),
            ("!ls -l", shell("ls -l")),
            ("! make test", shell("make test")),
        ];
        for (line, expected) in cases {
            assert_eq!(parse_line(line), expected, "{line}");
        }
        assert!(matches!(parse_line("!"), InputLine::Invalid(_)));
    }

    #[test]
    fn the_help_lists_every_command() {
        let commands: Vec<_> = command::offered(Surface::Terminal, UserRole::Owner).collect();
        let help = help(&commands);
        assert!(command_names().iter().all(|name| help.contains(&format!("  {name}"))), "{help}");
        assert!(help.contains("(also /exit)"), "{help}");
    }
}
