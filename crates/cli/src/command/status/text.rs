//! The same facts for people.

use hermes_exec::Exposure;
use hermes_policy::escape::escape;
use serde::Deserialize;
use serde_json::Value;
use unicode_width::UnicodeWidthStr;

use crate::Context;
use crate::command::gateway::health::format_health;
use crate::screen::{Screen, Tone, truncate};
use hermes_config::layers::Source;

/// How wide a line may be.
const LINE_WIDTH: usize = 80;
/// Where the second column begins.
const LABEL_WIDTH: usize = 12;

pub(super) fn text(context: &Context, facts: &Value) -> String {
    let mut page = StatusPage { screen: context.screen, text: String::new() };
    page.settings(facts);
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
        self.row("version", &display_text(&facts["version"]));
        self.row("home", &display_text(&facts["home"]));
        let found: Vec<String> = list(&facts["config"]["found"]).iter().map(display_text).collect();
        self.row("settings", &if found.is_empty() { "none".to_owned() } else { found.join(", ") });
        let problems = list(&facts["config"]["problems"]).len();
        if problems > 0 {
            let told = format!("{}; see `hermes config check`", format_count(&problems.into(), "remark"));
            self.toned(Tone::Warning, "", &told);
        }
        self.row(
            "commands",
            &format!("{} {}", display_text(&terminal["backend"]), source_text(&terminal["source"])),
        );
        if !terminal["image"].is_null() {
            self.row("  image", &display_text(&terminal["image"]));
        }
        self.row("  idle limit", &format_seconds(&terminal["lifetime_seconds"]));
        for volume in list(&terminal["volumes"]) {
            self.row("  mount", &display_text(volume));
        }
        for entry in list(&terminal["forwarded"]) {
            let name = display_text(&entry["name"]);
            if entry["present"] == true {
                self.row("  variable", &format!("{name}, present"));
            } else {
                self.toned(Tone::Warning, "  variable", &format!("{name}, missing"));
            }
        }
        match (gateway["backend"].as_str(), gateway["effective"].as_str()) {
            (Some("local"), _) => {
                let told = "users of the chats run commands on this machine as you";
                self.toned(
                    Tone::Warning,
                    "chats",
                    &format!("local {}: {told}", source_text(&gateway["source"])),
                );
            }
            (Some(backend), _) => {
                self.row("chats", &format!("{backend} {}", source_text(&gateway["source"])))
            }
            (None, Some(backend)) => self.row("chats", &format!("{backend} (default)")),
            (None, None) => {
                self.toned(
                    Tone::Warning,
                    "chats",
                    "unavailable: the sandbox does not work and no other backend is set",
                );
            }
        }
        if !gateway["image"].is_null() {
            self.row("  image", &display_text(&gateway["image"]));
        }
        self.row("  idle limit", &format_seconds(&gateway["lifetime_seconds"]));
        if gateway["running"] != true {
            self.row("  gateway", "not running");
        }
        for (platform, health) in gateway["platforms"].as_object().into_iter().flatten() {
            let tone = if health["state"] == "up" { Tone::Good } else { Tone::Warning };
            self.toned(tone, &format!("  {platform}"), &escape(&format_health(health)));
        }
        self.model(&facts["model"]);
    }

    fn model(&mut self, model: &Value) {
        let Some(name) = model["name"].as_str() else {
            return self.row("model", "none; choose one with `hermes config set model.default NAME`");
        };
        self.row("model", &format!("{} {}", escape(name), source_text(&model["source"])));
        if !model["problem"].is_null() {
            self.toned(Tone::Warning, "", &display_text(&model["problem"]));
            if !model["remedy"].is_null() {
                self.row("", &format!("→ {}", display_text(&model["remedy"])));
            }
            return;
        }
        self.row(
            "  served by",
            &format!("{}, {}", display_text(&model["provider"]), display_text(&model["address"])),
        );
        match model["key"].as_str() {
            Some(from) => self.row("  key", &format!("from {}", escape(from))),
            None => self.row("  key", "none"),
        }
        for fallback in list(&model["fallbacks"]) {
            self.row(
                "  else",
                &format!("{} by {}", display_text(&fallback["name"]), display_text(&fallback["provider"])),
            );
        }
    }

    fn backends(&mut self, facts: &Value) {
        self.title("backends");
        let configured = |name: &str| {
            facts["terminal"]["backend"].as_str() == Some(name)
                || facts["gateway"]["backend"].as_str() == Some(name)
        };
        let mut missing = Vec::new();
        for (name, backend) in facts["backends"].as_object().into_iter().flatten() {
            let confines = &backend["confines"];
            let rows = ["files", "network", "processes", "syscalls", "resources"]
                .map(|what| (what, &confines[what]));
            let nothing_known = rows.iter().all(|(_, hold)| hold["state"] == "unknown");
            let usable = backend["usable"].as_bool();
            match (usable, nothing_known && !configured(name) && name != "sandbox") {
                (None, _) => self.row(&format!("  {name}"), &display_text(&backend["reason"])),
                (Some(false), true) => {
                    missing.push(name.as_str());
                    continue;
                }
                (Some(false), false) => {
                    let told = format!("not usable: {}", display_text(&backend["reason"]));
                    self.toned(Tone::Bad, &format!("  {name}"), &told);
                    self.row("", &format!("→ {}", display_text(&backend["remedy"])));
                }
                (Some(true), _) => self.toned(Tone::Good, &format!("  {name}"), "works"),
            }
            self.engine(&backend["engine"]);
            if nothing_known {
                continue;
            }
            // What is the same for all is said once.
            if let [(_, first), rest @ ..] = rows.as_slice()
                && rest.iter().all(|(_, hold)| hold == first)
            {
                self.hold("all", first);
                continue;
            }
            for (what, hold) in rows {
                self.hold(what, hold);
            }
        }
        if !missing.is_empty() {
            self.row("  others", &format!("not part of this version: {}", missing.join(", ")));
        }
    }

    fn engine(&mut self, engine: &Value) {
        if engine.is_null() {
            return;
        }
        let without_root = if engine["rootless"] == true { ", without root" } else { "" };
        let name =
            format!("{} {}{without_root}", display_text(&engine["kind"]), display_text(&engine["version"]));
        self.row(
            "    engine",
            &format!("{name}, {} ({})", display_text(&engine["address"]), display_text(&engine["why"])),
        );
        let image = display_text(&engine["image"]);
        if engine["image_present"] == true {
            self.row("    image", &format!("{image}, present"));
        } else {
            self.toned(Tone::Warning, "    image", &format!("{image}, not pulled yet"));
        }
    }

    fn hold(&mut self, what: &str, hold: &Value) {
        let tone = match hold["state"].as_str() {
            Some("held") => Tone::Good,
            Some("not held") => Tone::Warning,
            _ => Tone::Bad,
        };
        let state = format!("{:8}", display_text(&hold["state"]));
        let before = format!("    {what:10}");
        let reason = wrap_indented(before.len() + 10, &display_text(&hold["reason"]));
        let line = format!("{before}{}  {}\n", self.screen.paint(tone, &state), self.quiet(&reason));
        self.text.push_str(&line);
    }

    fn places(&mut self, facts: &Value) {
        let (asleep, awake): (Vec<&Value>, Vec<&Value>) =
            list(&facts["places"]).iter().partition(|place| place["state"] == "asleep");
        self.title("environments");
        if awake.is_empty() {
            self.line("  none running");
        }
        for place in awake {
            let mut told = vec![
                display_text(&place["backend"]),
                format!("{} old", format_seconds(&place["age_seconds"])),
            ];
            if place["state"] == "live" {
                told.push(format!("idle for {}", format_seconds(&place["idle_seconds"])));
                told.push(format_count(&place["clients"], "client"));
                told.push(format!("{} running", place["processes"]));
            } else {
                told.push("does not answer".to_owned());
            }
            let name = self.screen.paint(Tone::Strong, &display_text(&place["name"]));
            self.line(&format!("  {name}  {}", told.join(", ")));
            self.row(
                "    session",
                &truncate_line(&display_text(&place["session"]), LINE_WIDTH - LABEL_WIDTH - 1),
            );
            let holes = list(&place["holes"]);
            if holes.is_empty() {
                self.row("    exposures", "none");
            }
            for hole in holes {
                self.row("    exposes", &exposure_text(hole));
            }
        }
        if !asleep.is_empty() {
            let count = asleep.len();
            let told =
                if count == 1 { "1 more is stopped".to_owned() } else { format!("{count} more are stopped") };
            self.line(&format!("  {told}: only their files remain; the next command starts them again"));
        }
    }

    fn processes(&mut self, facts: &Value) {
        let processes = list(&facts["processes"]);
        if processes.is_empty() {
            return;
        }
        self.title("processes");
        for process in processes {
            let age = format_seconds(&process["age_seconds"]);
            let state = match (process["running"] == true, &process["exit_code"]) {
                (true, _) => format!("running for {age}"),
                (false, Value::Null) => format!("ended after {age}"),
                (false, code) => format!("ended after {age} with {code}"),
            };
            let id = self.screen.paint(Tone::Strong, &display_text(&process["id"]));
            self.line(&format!("  {id}  {state}, in {}", display_text(&process["place"])));
            self.line(&format!("    {}", truncate_line(&display_text(&process["command"]), LINE_WIDTH - 4)));
        }
    }

    fn questions(&mut self, facts: &Value) {
        let questions = list(&facts["questions"]);
        if questions.is_empty() {
            return;
        }
        self.title("questions");
        for question in questions {
            let id = self.screen.paint(Tone::Strong, &display_text(&question["id"]));
            self.line(&format!("  {id}  for {} more", format_seconds(&question["expires_seconds"])));
            self.line(&format!("    {}", truncate_line(&display_text(&question["text"]), LINE_WIDTH - 4)));
        }
        self.line("  → answer with `hermes approvals approve ID` or `deny ID`");
    }

    fn title(&mut self, name: &str) {
        let name = self.screen.paint(Tone::Strong, name);
        self.line(&format!("\n{name}"));
    }

    fn row(&mut self, name: &str, value: &str) {
        let name = self.screen.paint(Tone::Strong, &format!("{name:LABEL_WIDTH$}"));
        self.line(&format!("{name}{}", wrap_indented(LABEL_WIDTH, value)));
    }

    fn toned(&mut self, tone: Tone, name: &str, value: &str) {
        let name = self.screen.paint(Tone::Strong, &format!("{name:LABEL_WIDTH$}"));
        let value = wrap_indented(LABEL_WIDTH, value);
        self.line(&format!("{name}{}", self.screen.paint(tone, &value)));
    }

    fn line(&mut self, line: &str) {
        self.text.push_str(line);
        self.text.push('\n');
    }

    fn quiet(&self, text: &str) -> String {
        self.screen.paint(Tone::Quiet, text)
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// A value as a person may see it, whoever wrote it.
fn display_text(value: &Value) -> String {
    escape(&value.as_str().map_or_else(|| value.to_string(), str::to_owned))
}

fn source_text(source: &Value) -> String {
    serde_json::from_value::<Source>(source.clone()).map_or_else(|_| String::new(), |s| format!("({s})"))
}

fn exposure_text(hole: &Value) -> String {
    Exposure::deserialize(hole).map_or_else(|_| display_text(hole), |hole| hole.to_string())
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

fn format_count(number: &Value, noun: &str) -> String {
    let many = if number.as_u64() == Some(1) { "" } else { "s" };
    format!("{number} {noun}{many}")
}

/// The beginning of a text, on one line.
fn truncate_line(text: &str, width: usize) -> String {
    truncate(&text.replace('\n', "⏎"), width)
}

/// A text in lines that are not too long, all but the first indented. A word that is too long stays whole.
fn wrap_indented(indent: usize, text: &str) -> String {
    let mut out = String::new();
    let mut at = indent;
    for word in text.replace('\n', "⏎").split(' ') {
        let length = word.width();
        if at > indent && at + 1 + length > LINE_WIDTH {
            out.push('\n');
            out.push_str(&" ".repeat(indent));
            at = indent;
        } else if at > indent {
            out.push(' ');
            at += 1;
        }
        out.push_str(word);
        at += length;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_folded_at_words_and_clipped_to_one_line() {
        let long = "x".repeat(70);
        assert_eq!(wrap_indented(4, &format!("a {long} b {long}")), format!("a {long} b\n    {long}"));
        assert_eq!(wrap_indented(4, "short"), "short");
        assert_eq!(truncate_line("one\ntwo", 10), "one⏎two");
        assert_eq!(truncate_line("abcdefgh", 5), "abcd…");
    }

    #[test]
    fn times_are_told_in_the_unit_that_fits() {
        let told: Vec<_> = [0, 119, 120, 7199, 7200, 172_800].map(|s| format_seconds(&Value::from(s))).into();
        assert_eq!(told, ["0 s", "119 s", "2 min", "119 min", "2 h", "2 d"]);
    }
}
