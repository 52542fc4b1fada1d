//! The same facts for people.

use hermes_exec::Exposure;
use hermes_policy::escape::escape;
use serde::Deserialize;
use serde_json::Value;

use crate::Context;
use crate::command::gateway::health::format_health;
use crate::screen::{Screen, Tone};
use hermes_config::layers::Source;

/// How wide a line may be.
const WIDTH: usize = 80;
/// Where the second column begins.
const COLUMN: usize = 12;

pub(super) fn text(context: &Context, facts: &Value) -> String {
    let mut page = Page { screen: context.screen, text: String::new() };
    page.settings(facts);
    page.backends(facts);
    page.places(facts);
    page.processes(facts);
    page.questions(facts);
    page.text
}

struct Page {
    screen: Screen,
    text: String,
}

impl Page {
    fn settings(&mut self, facts: &Value) {
        let terminal = &facts["terminal"];
        let gateway = &facts["gateway"];
        self.row("version", &word(&facts["version"]));
        self.row("home", &word(&facts["home"]));
        let found: Vec<String> = list(&facts["config"]["found"]).iter().map(word).collect();
        self.row("settings", &if found.is_empty() { "none".to_owned() } else { found.join(", ") });
        let problems = list(&facts["config"]["problems"]).len();
        if problems > 0 {
            let told = format!("{}; see `hermes config check`", counted(&problems.into(), "remark"));
            self.toned(Tone::Doubtful, "", &told);
        }
        self.row("commands", &format!("{} {}", word(&terminal["backend"]), from(&terminal["source"])));
        if !terminal["image"].is_null() {
            self.row("  image", &word(&terminal["image"]));
        }
        self.row("  idle for", &format!("{} at most", time(&terminal["lifetime_seconds"])));
        for volume in list(&terminal["volumes"]) {
            self.row("  mount", &word(volume));
        }
        for entry in list(&terminal["forwarded"]) {
            let name = word(&entry["name"]);
            if entry["present"] == true {
                self.row("  variable", &format!("{name}, present"));
            } else {
                self.toned(Tone::Doubtful, "  variable", &format!("{name}, missing"));
            }
        }
        match (gateway["backend"].as_str(), gateway["effective"].as_str()) {
            (Some("local"), _) => {
                let told = "whoever may chat runs commands on this machine, as you";
                self.toned(Tone::Doubtful, "chats", &format!("local {}: {told}", from(&gateway["source"])));
            }
            (Some(backend), _) => self.row("chats", &format!("{backend} {}", from(&gateway["source"]))),
            (None, Some(backend)) => self.row("chats", &format!("{backend} (default)")),
            (None, None) => {
                self.toned(
                    Tone::Doubtful,
                    "chats",
                    "nowhere: the sandbox does not work and nothing else is set",
                );
            }
        }
        if !gateway["image"].is_null() {
            self.row("  image", &word(&gateway["image"]));
        }
        self.row("  idle for", &format!("{} at most", time(&gateway["lifetime_seconds"])));
        if gateway["running"] != true {
            self.row("  gateway", "does not run");
        }
        for (platform, health) in gateway["platforms"].as_object().into_iter().flatten() {
            let tone = if health["state"] == "up" { Tone::Good } else { Tone::Doubtful };
            self.toned(tone, &format!("  {platform}"), &escape(&format_health(health)));
        }
        self.model(&facts["model"]);
    }

    fn model(&mut self, model: &Value) {
        let Some(name) = model["name"].as_str() else {
            return self.row("model", "none; set one with `hermes config set model.default NAME`");
        };
        self.row("model", &format!("{} {}", escape(name), from(&model["source"])));
        if !model["problem"].is_null() {
            self.toned(Tone::Doubtful, "", &word(&model["problem"]));
            if !model["remedy"].is_null() {
                self.row("", &format!("→ {}", word(&model["remedy"])));
            }
            return;
        }
        self.row("  served by", &format!("{}, {}", word(&model["provider"]), word(&model["address"])));
        match model["key"].as_str() {
            Some(from) => self.row("  key", &format!("from {}", escape(from))),
            None => self.row("  key", "none"),
        }
        for fallback in list(&model["fallbacks"]) {
            self.row("  else", &format!("{} by {}", word(&fallback["name"]), word(&fallback["provider"])));
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
                (None, _) => self.row(&format!("  {name}"), &word(&backend["reason"])),
                (Some(false), true) => {
                    missing.push(name.as_str());
                    continue;
                }
                (Some(false), false) => {
                    let told = format!("cannot be used: {}", word(&backend["reason"]));
                    self.toned(Tone::Bad, &format!("  {name}"), &told);
                    self.row("", &format!("→ {}", word(&backend["remedy"])));
                }
                (Some(true), _) => self.toned(Tone::Good, &format!("  {name}"), "can be used"),
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
        let name = format!("{} {}{without_root}", word(&engine["kind"]), word(&engine["version"]));
        self.row("    engine", &format!("{name}, {} ({})", word(&engine["address"]), word(&engine["why"])));
        let image = word(&engine["image"]);
        if engine["image_present"] == true {
            self.row("    image", &format!("{image}, present"));
        } else {
            self.toned(Tone::Doubtful, "    image", &format!("{image}, not there yet"));
        }
    }

    fn hold(&mut self, what: &str, hold: &Value) {
        let tone = match hold["state"].as_str() {
            Some("held") => Tone::Good,
            Some("not held") => Tone::Doubtful,
            _ => Tone::Bad,
        };
        let state = format!("{:8}", word(&hold["state"]));
        let before = format!("    {what:10}");
        let reason = folded(before.len() + 10, &word(&hold["reason"]));
        let line = format!("{before}{}  {}\n", self.screen.paint(tone, &state), self.quiet(&reason));
        self.text.push_str(&line);
    }

    fn places(&mut self, facts: &Value) {
        let (asleep, awake): (Vec<&Value>, Vec<&Value>) =
            list(&facts["places"]).iter().partition(|place| place["state"] == "asleep");
        self.title("places");
        if awake.is_empty() {
            self.line("  none lives");
        }
        for place in awake {
            let mut told = vec![word(&place["backend"]), format!("{} old", time(&place["age_seconds"]))];
            if place["state"] == "live" {
                told.push(format!("idle for {}", time(&place["idle_seconds"])));
                told.push(counted(&place["clients"], "client"));
                told.push(format!("{} running", place["processes"]));
            } else {
                told.push("does not answer".to_owned());
            }
            let name = self.screen.paint(Tone::Strong, &word(&place["name"]));
            self.line(&format!("  {name}  {}", told.join(", ")));
            self.row("    session", &clipped(&word(&place["session"]), WIDTH - COLUMN - 1));
            let holes = list(&place["holes"]);
            if holes.is_empty() {
                self.row("    holes", "none");
            }
            for hole in holes {
                self.row("    hole", &hole_text(hole));
            }
        }
        if !asleep.is_empty() {
            let count = asleep.len();
            let told =
                if count == 1 { "one more is asleep".to_owned() } else { format!("{count} more are asleep") };
            self.line(&format!("  {told}: only files are kept, and the next command wakes it"));
        }
    }

    fn processes(&mut self, facts: &Value) {
        let processes = list(&facts["processes"]);
        if processes.is_empty() {
            return;
        }
        self.title("processes");
        for process in processes {
            let age = time(&process["age_seconds"]);
            let state = match (process["running"] == true, &process["exit_code"]) {
                (true, _) => format!("running for {age}"),
                (false, Value::Null) => format!("ended after {age}"),
                (false, code) => format!("ended after {age} with {code}"),
            };
            let id = self.screen.paint(Tone::Strong, &word(&process["id"]));
            self.line(&format!("  {id}  {state}, in {}", word(&process["place"])));
            self.line(&format!("    {}", clipped(&word(&process["command"]), WIDTH - 4)));
        }
    }

    fn questions(&mut self, facts: &Value) {
        let questions = list(&facts["questions"]);
        if questions.is_empty() {
            return;
        }
        self.title("questions");
        for question in questions {
            let id = self.screen.paint(Tone::Strong, &word(&question["id"]));
            self.line(&format!("  {id}  for {} more", time(&question["expires_seconds"])));
            self.line(&format!("    {}", clipped(&word(&question["text"]), WIDTH - 4)));
        }
        self.line("  → `hermes approvals approve ID` or `deny ID` answers one");
    }

    fn title(&mut self, name: &str) {
        let name = self.screen.paint(Tone::Strong, name);
        self.line(&format!("\n{name}"));
    }

    fn row(&mut self, name: &str, value: &str) {
        let name = self.screen.paint(Tone::Strong, &format!("{name:COLUMN$}"));
        self.line(&format!("{name}{}", folded(COLUMN, value)));
    }

    fn toned(&mut self, tone: Tone, name: &str, value: &str) {
        let name = self.screen.paint(Tone::Strong, &format!("{name:COLUMN$}"));
        let value = folded(COLUMN, value);
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
fn word(value: &Value) -> String {
    escape(&value.as_str().map_or_else(|| value.to_string(), str::to_owned))
}

fn from(source: &Value) -> String {
    serde_json::from_value::<Source>(source.clone()).map_or_else(|_| String::new(), |s| format!("({s})"))
}

fn hole_text(hole: &Value) -> String {
    Exposure::deserialize(hole).map_or_else(|_| word(hole), |hole| hole.to_string())
}

/// Seconds in the largest unit that fits.
fn time(seconds: &Value) -> String {
    let seconds = seconds.as_u64().unwrap_or_default();
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} d", seconds / 86_400),
    }
}

fn counted(number: &Value, noun: &str) -> String {
    let many = if number.as_u64() == Some(1) { "" } else { "s" };
    format!("{number} {noun}{many}")
}

/// The beginning of a text, on one line.
fn clipped(text: &str, width: usize) -> String {
    let line = text.replace('\n', "⏎");
    if line.chars().count() <= width {
        return line;
    }
    line.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

/// A text in lines that are not too long, all but the first indented. A word that is too long stays whole.
fn folded(indent: usize, text: &str) -> String {
    let mut out = String::new();
    let mut at = indent;
    for word in text.replace('\n', "⏎").split(' ') {
        let length = word.chars().count();
        if at > indent && at + 1 + length > WIDTH {
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
        assert_eq!(folded(4, &format!("a {long} b {long}")), format!("a {long} b\n    {long}"));
        assert_eq!(folded(4, "short"), "short");
        assert_eq!(clipped("one\ntwo", 10), "one⏎two");
        assert_eq!(clipped("abcdefgh", 5), "abcd…");
    }

    #[test]
    fn times_are_told_in_the_unit_that_fits() {
        let told: Vec<_> = [0, 119, 120, 7199, 7200, 172_800].map(|s| time(&Value::from(s))).into();
        assert_eq!(told, ["0 s", "119 s", "2 min", "119 min", "2 h", "2 d"]);
    }
}
