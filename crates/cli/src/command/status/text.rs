//! The status as text.

use hermes_exec::Exposure;
use hermes_policy::escape::escape;
use serde::Deserialize;
use serde_json::Value;
use unicode_width::UnicodeWidthStr;

use crate::Context;
use crate::command::gateway::health::format_health;
use crate::screen::{Screen, Tone, format_count, truncate};
use hermes_config::layers::Source;

const LINE_WIDTH: usize = 80;
const LABEL_WIDTH: usize = 12;

pub(super) fn text(context: &Context, facts: &Value) -> String {
    let mut page = StatusPage { screen: context.screen, text: String::new() };
    page.settings(facts);
    page.model(&facts["model"]);
    page.backends(facts);
    page.places(facts);
    page.processes(facts);
    page.questions(facts);
    page.text
}

struct StatusPage {
    screen: Screen,
    text: String,
}

impl StatusPage {
    fn settings(&mut self, facts: &Value) {
        let terminal = &facts["terminal"];
        let gateway = &facts["gateway"];
        self.row("version", &display(&facts["version"]));
        self.row("home", &display(&facts["home"]));
        let found: Vec<String> = list(&facts["config"]["found"]).iter().map(display).collect();
        self.row("settings", &if found.is_empty() { "none".to_owned() } else { found.join(", ") });
        let problems = list(&facts["config"]["problems"]).len();
        if problems > 0 {
            let count = format_count(problems, "problem");
            self.colored(Tone::Warning, "", &format!("{count}; see `hermes config check`"));
        }
        let backend = display(&terminal["backend"]);
        self.row("commands", &format!("{backend} {}", format_source(&terminal["source"])));
        self.optional_row("  image", &terminal["image"]);
        self.row("  idle limit", &format_seconds(&terminal["lifetime_seconds"]));
        for volume in list(&terminal["volumes"]) {
            self.row("  mount", &display(volume));
        }
        for entry in list(&terminal["forwarded"]) {
            let is_present = entry["present"] == true;
            let (tone, state) =
                if is_present { (Tone::Plain, "present") } else { (Tone::Warning, "missing") };
            self.colored(tone, "  variable", &format!("{}, {state}", display(&entry["name"])));
        }
        let source = format_source(&gateway["source"]);
        let (tone, chats) = match (gateway["backend"].as_str(), gateway["effective"].as_str()) {
            (Some("local"), _) => {
                let warning = "users of the chats run commands on this machine as you";
                (Tone::Warning, format!("local {source}: {warning}"))
            }
            (Some(backend), _) => (Tone::Plain, format!("{backend} {source}")),
            (None, Some(backend)) => (Tone::Plain, format!("{backend} (default)")),
            (None, None) => {
                let problem = "unavailable: the sandbox does not work and no other backend is set";
                (Tone::Warning, problem.to_owned())
            }
        };
        self.colored(tone, "chats", &chats);
        self.optional_row("  image", &gateway["image"]);
        self.row("  idle limit", &format_seconds(&gateway["lifetime_seconds"]));
        if gateway["running"] != true {
            self.row("  gateway", "not running");
        }
        for (platform, health) in gateway["platforms"].as_object().into_iter().flatten() {
            let tone = if health["state"] == "up" { Tone::Good } else { Tone::Warning };
            self.colored(tone, &format!("  {platform}"), &escape(&format_health(health)));
        }
    }

    fn model(&mut self, model: &Value) {
        let Some(name) = model["name"].as_str() else {
            return self.row("model", "none; choose one with `hermes config set model.default NAME`");
        };
        self.row("model", &format!("{} {}", escape(name), format_source(&model["source"])));
        if !model["problem"].is_null() {
            self.colored(Tone::Warning, "", &display(&model["problem"]));
            if !model["remedy"].is_null() {
                self.row("", &format!("→ {}", display(&model["remedy"])));
            }
            return;
        }
        let provider = format!("{}, {}", display(&model["provider"]), display(&model["address"]));
        self.row("  served by", &provider);
        let key = model["key"].as_str().map(|source| format!("from {}", escape(source)));
        self.row("  key", key.as_deref().unwrap_or("none"));
        for fallback in list(&model["fallbacks"]) {
            let model = format!("{} by {}", display(&fallback["name"]), display(&fallback["provider"]));
            self.row("  fallback", &model);
        }
    }

    fn backends(&mut self, facts: &Value) {
        self.title("backends");
        let is_configured = |name: &str| {
            facts["terminal"]["backend"].as_str() == Some(name)
                || facts["gateway"]["backend"].as_str() == Some(name)
        };
        let mut missing = Vec::new();
        for (name, backend) in facts["backends"].as_object().into_iter().flatten() {
            let guarantees = ["files", "network", "processes", "syscalls", "resources"]
                .map(|area| (area, &backend["confines"][area]));
            let is_unknown = guarantees.iter().all(|(_, guarantee)| guarantee["state"] == "unknown");
            let label = format!("  {name}");
            match (backend["usable"].as_bool(), is_unknown && !is_configured(name) && name != "sandbox") {
                (None, _) => self.row(&label, &display(&backend["reason"])),
                (Some(false), true) => {
                    missing.push(name.as_str());
                    continue;
                }
                (Some(false), false) => {
                    let problem = format!("not usable: {}", display(&backend["reason"]));
                    self.colored(Tone::Bad, &label, &problem);
                    self.row("", &format!("→ {}", display(&backend["remedy"])));
                }
                (Some(true), _) => self.colored(Tone::Good, &label, "works"),
            }
            self.engine(&backend["engine"]);
            self.guard(&backend["guard"]);
            let [(_, first), rest @ ..] = &guarantees;
            if is_unknown {
                // There is nothing to show.
            } else if rest.iter().all(|(_, guarantee)| guarantee == first) {
                self.guarantee("all", first);
            } else {
                guarantees.iter().for_each(|(area, guarantee)| self.guarantee(area, guarantee));
            }
        }
        if !missing.is_empty() {
            self.row("  others", &format!("not part of this version: {}", missing.join(", ")));
        }
    }

    /// The guard of this machine, which other backends do not have.
    fn guard(&mut self, guard: &Value) {
        let Some(setting) = guard["setting"].as_str() else { return };
        let (tone, text) = match guard["problem"].as_str() {
            Some(problem) => (Tone::Warning, format!("{setting}, but not available: {}", escape(problem))),
            None if setting == "off" => (Tone::Warning, "off: only the gate protects your files".to_owned()),
            None if setting == "project" => (
                Tone::Good,
                "project: commands without approval change only the project and caches".to_owned(),
            ),
            None => (
                Tone::Good,
                "protect: keeps credentials, sockets and start-up files from unapproved commands".to_owned(),
            ),
        };
        self.colored(tone, "    guard", &text);
        let repositories = &guard["repositories"];
        if let Some(found) = repositories["found"].as_u64() {
            let text = format!("keeps hooks and settings of {found} git repositories");
            if repositories["is_limited"] == true {
                let text = format!("{text}, those nearest to here; there are more");
                self.colored(Tone::Warning, "", &text);
            } else {
                self.row("", &text);
            }
        }
    }

    fn engine(&mut self, engine: &Value) {
        if engine.is_null() {
            return;
        }
        let rootless = if engine["rootless"] == true { ", rootless" } else { "" };
        let name = format!("{} {}{rootless}", display(&engine["kind"]), display(&engine["version"]));
        let address = format!("{} ({})", display(&engine["address"]), display(&engine["why"]));
        self.row("    engine", &format!("{name}, {address}"));
        let is_present = engine["image_present"] == true;
        let (tone, state) =
            if is_present { (Tone::Plain, "present") } else { (Tone::Warning, "not pulled yet") };
        self.colored(tone, "    image", &format!("{}, {state}", display(&engine["image"])));
    }

    /// One line about what a backend confines.
    fn guarantee(&mut self, area: &str, guarantee: &Value) {
        let tone = match guarantee["state"].as_str() {
            Some("held") => Tone::Good,
            Some("not held") => Tone::Warning,
            _ => Tone::Bad,
        };
        let label = format!("    {area:10}");
        let state = self.screen.paint(tone, &format!("{:8}", display(&guarantee["state"])));
        let reason = wrap_indented(label.len() + 10, &display(&guarantee["reason"]));
        self.line(&format!("{label}{state}  {}", self.screen.paint(Tone::Quiet, &reason)));
    }

    fn places(&mut self, facts: &Value) {
        let (stopped, running): (Vec<&Value>, Vec<&Value>) =
            list(&facts["places"]).iter().partition(|place| place["state"] == "asleep");
        self.title("environments");
        if running.is_empty() {
            self.line("  none running");
        }
        for place in running {
            let age = format_seconds(&place["age_seconds"]);
            let state = if place["state"] == "live" {
                let idle = format_seconds(&place["idle_seconds"]);
                let clients = format_count(place["clients"].as_u64().unwrap_or_default(), "client");
                format!("idle for {idle}, {clients}, {} running", place["processes"])
            } else {
                "does not answer".to_owned()
            };
            let name = self.screen.paint(Tone::Strong, &display(&place["name"]));
            self.line(&format!("  {name}  {}, {age} old, {state}", display(&place["backend"])));
            let session = truncate_line(&display(&place["session"]), LINE_WIDTH - LABEL_WIDTH - 1);
            self.row("    session", &session);
            let exposures = list(&place["holes"]);
            if exposures.is_empty() {
                self.row("    exposures", "none");
            }
            for exposure in exposures {
                let known = Exposure::deserialize(exposure);
                self.row("    exposes", &known.map_or_else(|_| display(exposure), |known| known.to_string()));
            }
        }
        if !stopped.is_empty() {
            let count = stopped.len();
            let are = if count == 1 { "is" } else { "are" };
            self.line(&format!(
                "  {count} more {are} stopped: only files remain; the next command starts them again"
            ));
        }
    }

    fn processes(&mut self, facts: &Value) {
        let processes = list(&facts["processes"]);
        if !processes.is_empty() {
            self.title("processes");
        }
        for process in processes {
            let age = format_seconds(&process["age_seconds"]);
            let state = match (process["running"] == true, &process["exit_code"]) {
                (true, _) => format!("running for {age}"),
                (false, Value::Null) => format!("ended after {age}"),
                (false, code) => format!("ended after {age} with {code}"),
            };
            self.item(&process["id"], &format!("{state}, in {}", display(&process["place"])));
            self.detail(&process["command"]);
        }
    }

    fn questions(&mut self, facts: &Value) {
        let questions = list(&facts["questions"]);
        if questions.is_empty() {
            return;
        }
        self.title("questions");
        for question in questions {
            self.item(&question["id"], &format!("for {} more", format_seconds(&question["expires_seconds"])));
            self.detail(&question["text"]);
        }
        self.line("  → answer with `hermes approvals approve ID` or `deny ID`");
    }

    fn title(&mut self, name: &str) {
        self.line(&format!("\n{}", self.screen.paint(Tone::Strong, name)));
    }

    fn row(&mut self, label: &str, value: &str) {
        self.colored(Tone::Plain, label, value);
    }

    fn optional_row(&mut self, label: &str, value: &Value) {
        if !value.is_null() {
            self.row(label, &display(value));
        }
    }

    fn colored(&mut self, tone: Tone, label: &str, value: &str) {
        let label = self.screen.paint(Tone::Strong, &format!("{label:LABEL_WIDTH$}"));
        let value = self.screen.paint(tone, &wrap_indented(LABEL_WIDTH, value));
        self.line(&format!("{label}{value}"));
    }

    fn item(&mut self, id: &Value, text: &str) {
        self.line(&format!("  {}  {text}", self.screen.paint(Tone::Strong, &display(id))));
    }

    fn detail(&mut self, text: &Value) {
        self.line(&format!("    {}", truncate_line(&display(text), LINE_WIDTH - 4)));
    }

    fn line(&mut self, line: &str) {
        self.text.push_str(line);
        self.text.push('\n');
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// A value as text, with control characters escaped.
fn display(value: &Value) -> String {
    escape(&value.as_str().map_or_else(|| value.to_string(), str::to_owned))
}

fn format_source(source: &Value) -> String {
    Source::deserialize(source).map_or_else(|_| String::new(), |source| format!("({source})"))
}

/// Seconds in the largest unit that fits.
fn format_seconds(seconds: &Value) -> String {
    let seconds = seconds.as_u64().unwrap_or_default();
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} d", seconds / 86_400),
    }
}

/// The start of a text, on one line.
fn truncate_line(text: &str, width: usize) -> String {
    truncate(&text.replace('\n', "⏎"), width)
}

/// Wraps a text at words and indents all lines but the first. A word that is too long is not split.
fn wrap_indented(indent: usize, text: &str) -> String {
    let mut out = String::new();
    let mut column = indent;
    for word in text.replace('\n', "⏎").split(' ') {
        if column > indent && column + 1 + word.width() > LINE_WIDTH {
            out.push('\n');
            out.push_str(&" ".repeat(indent));
            column = indent;
        } else if column > indent {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += word.width();
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_wrapped_at_words_and_cut_to_one_line() {
        let long = "x".repeat(70);
        assert_eq!(wrap_indented(4, &format!("a {long} b {long}")), format!("a {long} b\n    {long}"));
        assert_eq!(wrap_indented(4, "short"), "short");
        assert_eq!(truncate_line("one\ntwo", 10), "one⏎two");
        assert_eq!(truncate_line("abcdefgh", 5), "abcd…");
    }

    #[test]
    fn seconds_are_formatted_in_the_largest_unit_that_fits() {
        let formatted: Vec<_> =
            [0, 119, 120, 7199, 7200, 172_800].map(|s| format_seconds(&Value::from(s))).into();
        assert_eq!(formatted, ["0 s", "119 s", "2 min", "119 min", "2 h", "2 d"]);
    }
}
