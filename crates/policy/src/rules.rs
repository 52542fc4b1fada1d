//! The rules: what is never done, and what is asked about, each as a fact about a parsed command.
//!
//! A rule has an id, a reason in plain words, and examples on both sides that are its tests. [`matches`] reports
//! every rule that matches, with the part of the command it matched.

mod cloud;
mod containers;
mod databases;
mod doubts;
mod files;
mod git;
mod hermes;
mod network;
mod processes;
mod system;

use std::collections::HashMap;
use std::sync::LazyLock;

use serde::Serialize;

use crate::effect::{Effect, effects};
use crate::paths::Landmarks;
use crate::shell::{CONTAINERS, Script, Segment, Surroundings, Word, first_operand};

/// How hard a rule is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tier {
    /// Somebody must say yes.
    Ask,
    /// Nobody can say yes.
    Floor,
}

/// One rule.
#[derive(Debug)]
pub struct Rule {
    /// A stable name, such as `delete-root`.
    pub id: &'static str,
    /// How hard it is.
    pub tier: Tier,
    /// Why, in one line, for people.
    pub reason: &'static str,
    /// Whether it also concerns what happens inside a container the command starts.
    reaches_inside: bool,
    on: On,
    test: fn(&View<'_>) -> bool,
    /// Commands it matches.
    pub matches: &'static [&'static str],
    /// Commands that look like it and that it leaves alone.
    pub ignores: &'static [&'static str],
}

/// Which segments a rule looks at.
#[derive(Debug)]
enum On {
    /// Those of these programs.
    Programs(&'static [&'static str]),
    /// Those that touch files.
    Effects,
    /// All.
    Every,
}

impl Rule {
    const fn floor(id: &'static str, reason: &'static str, on: On, test: fn(&View<'_>) -> bool) -> Self {
        Self { id, tier: Tier::Floor, reason, reaches_inside: true, on, test, matches: &[], ignores: &[] }
    }

    const fn ask(id: &'static str, reason: &'static str, on: On, test: fn(&View<'_>) -> bool) -> Self {
        Self { id, tier: Tier::Ask, reason, reaches_inside: false, on, test, matches: &[], ignores: &[] }
    }

    const fn inside(mut self) -> Self {
        self.reaches_inside = true;
        self
    }

    const fn examples(mut self, matches: &'static [&'static str], ignores: &'static [&'static str]) -> Self {
        self.matches = matches;
        self.ignores = ignores;
        self
    }
}

/// A rule that matched, and where.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Match {
    /// The rule's id.
    pub id: &'static str,
    /// How hard it is here: inside a container that a command starts, the floor is a question.
    #[serde(skip)]
    pub tier: Tier,
    /// The rule's reason.
    pub reason: &'static str,
    /// The part of the command that matched.
    pub segment: String,
    /// The text of the script that part was read from.
    #[serde(skip)]
    pub source: String,
    /// What is done to what, the same for every way of doing it.
    #[serde(skip)]
    pub(crate) what: String,
    /// Which segment of the script, when it is one.
    #[serde(skip)]
    pub(crate) at: Option<usize>,
    /// Whether the harm is uncertain and can be undone.
    #[serde(skip)]
    pub(crate) contained: bool,
    /// What it can harm where only some directories of the owner can be reached.
    #[serde(skip)]
    pub(crate) harms: Harms,
}

/// What a match can harm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Harms {
    /// Only the place it happens in.
    Place,
    /// Something that outlives the place.
    Owner,
}

/// The id of matches that come from the owner's own ask rules.
const BY_OWNER: &str = "owner-rule";

impl Match {
    pub(crate) fn by_owner(segment: &Segment) -> Self {
        Self {
            id: BY_OWNER,
            tier: Tier::Ask,
            reason: "the owner wants to be asked about this command",
            segment: segment.show(),
            source: segment.source.clone(),
            what: format!("{BY_OWNER}:{}", segment.show()),
            at: None,
            contained: false,
            harms: Harms::Owner,
        }
    }

    pub(crate) fn is_by_owner(&self) -> bool {
        self.id == BY_OWNER
    }
}

/// A segment with what the rules want to know about it.
struct View<'a> {
    segment: &'a Segment,
    effects: &'a [Effect],
    marks: Landmarks<'a>,
}

impl View<'_> {
    fn args(&self) -> &[Word] {
        &self.segment.args
    }

    fn name(&self) -> &str {
        &self.segment.name
    }

    fn has(&self, options: &[&str]) -> bool {
        crate::shell::has(self.args(), options)
    }

    fn values(&self, options: &[&str]) -> Vec<Word> {
        crate::shell::values(self.args(), options)
    }

    fn operands(&self, valued: &[&str]) -> Vec<&Word> {
        crate::shell::operands(self.args(), valued)
    }

    /// The first operand, for programs that are steered by a verb.
    fn verb(&self, valued: &[&str]) -> &str {
        self.args().get(first_operand(self.args(), valued)).map(Word::prefix).unwrap_or_default()
    }

    /// The known operands, in order.
    fn words(&self) -> Vec<&str> {
        self.operands(&[]).into_iter().filter_map(Word::known).collect()
    }

    fn asks_for_help(&self) -> bool {
        self.args().iter().any(|word| matches!(word.known(), Some("--help" | "--version")))
            || matches!(self.args(), [only] if matches!(only.known(), Some("-h" | "-V")))
    }

    fn via(&self, program: &str) -> bool {
        self.segment.via.iter().any(|via| via == program)
    }

    fn any_delete(&self, test: impl Fn(&str, bool) -> bool) -> bool {
        self.effects.iter().any(|effect| matches!(effect, Effect::Delete { path, tree } if test(path, *tree)))
    }

    fn any_write(&self, test: impl Fn(&str) -> bool) -> bool {
        self.effects.iter().any(|effect| matches!(effect, Effect::Write { path } if test(path)))
    }

    fn any_named(&self, test: impl Fn(&str) -> bool) -> bool {
        self.effects.iter().any(|effect| matches!(effect, Effect::Name { path } if test(path)))
    }

    fn any_read(&self, test: impl Fn(&str) -> bool) -> bool {
        self.effects.iter().any(|effect| matches!(effect, Effect::Read { path } if test(path)))
    }
}

/// All rules about segments, in the order they are listed.
fn all() -> impl Iterator<Item = &'static Rule> {
    [
        files::RULES,
        processes::RULES,
        hermes::RULES,
        system::RULES,
        git::RULES,
        databases::RULES,
        containers::RULES,
        cloud::RULES,
        network::RULES,
    ]
    .into_iter()
    .flatten()
}

pub(crate) use network::is_metadata;

/// Every rule, for listing.
pub fn list() -> Vec<&'static Rule> {
    all().collect()
}

/// Rules about the machine itself: its processes, services, packages and users.
fn is_about_the_machine(rule: &Rule) -> bool {
    let machine = [processes::RULES, system::RULES].into_iter().flatten();
    machine.into_iter().any(|known| known.id == rule.id)
}

/// What a rule that matched can harm: files only where they are the owner's, the rest unless it stays in the place.
fn harms(rule: &Rule, view: &View<'_>) -> Harms {
    let stays = match rule.on {
        On::Effects => !view.effects.iter().any(|effect| {
            let (Effect::Delete { path, .. }
            | Effect::Write { path }
            | Effect::Read { path }
            | Effect::Name { path }) = effect;
            view.marks.touches_owned(path)
        }),
        On::Programs(_) | On::Every => is_about_the_machine(rule),
    };
    if stays { Harms::Place } else { Harms::Owner }
}

struct Index {
    by_program: HashMap<&'static str, Vec<&'static Rule>>,
    by_effect: Vec<&'static Rule>,
    every: Vec<&'static Rule>,
}

static INDEX: LazyLock<Index> = LazyLock::new(|| {
    let mut index = Index { by_program: HashMap::new(), by_effect: Vec::new(), every: Vec::new() };
    for rule in all() {
        match rule.on {
            On::Programs(programs) => {
                for program in programs {
                    index.by_program.entry(program).or_default().push(rule);
                }
            }
            On::Effects => index.by_effect.push(rule),
            On::Every => index.every.push(rule),
        }
    }
    index
});

/// Rules whose harm is uncertain and can be undone: a model's word may settle them.
const CONTAINED: &[&str] = &["write-secrets", "containers"];

/// The paths a command touches, however it does.
fn paths_of(effects: &[Effect]) -> String {
    let mut paths: Vec<&str> = effects
        .iter()
        .map(|effect| match effect {
            Effect::Delete { path, .. }
            | Effect::Write { path }
            | Effect::Read { path }
            | Effect::Name { path } => path.as_str(),
        })
        .collect();
    paths.sort_unstable();
    paths.dedup();
    paths.join("\n")
}

/// All rules that match a script.
pub(crate) fn matches(script: &Script, around: &Surroundings<'_>, owned: &[String]) -> Vec<Match> {
    let marks = Landmarks::new(around.home, around.hermes_home, around.cwd, owned);
    let mut found = Vec::new();
    for doubt in &script.doubts {
        found.push(doubts::rule(doubt));
    }
    for (at, segment) in script.segments.iter().enumerate() {
        let effects = effects(segment, around.home);
        let view = View { segment, effects: &effects, marks };
        let inside = segment.via.iter().any(|via| CONTAINERS.contains(&via.as_str()));
        let by_program = INDEX.by_program.get(segment.name.as_str()).map(Vec::as_slice).unwrap_or_default();
        let by_effect = if effects.is_empty() { &[][..] } else { INDEX.by_effect.as_slice() };
        for rule in by_program.iter().chain(by_effect).chain(&INDEX.every) {
            if (inside && !rule.reaches_inside) || !(rule.test)(&view) {
                continue;
            }
            let tier = if inside { Tier::Ask } else { rule.tier };
            let shown = segment.show();
            if found.iter().any(|known: &Match| known.id == rule.id && known.segment == shown) {
                continue;
            }
            let what = match rule.on {
                On::Effects => format!("{}:{}", rule.id, paths_of(&effects)),
                On::Programs(_) | On::Every => format!("{}:{shown}", rule.id),
            };
            found.push(Match {
                id: rule.id,
                tier,
                reason: rule.reason,
                segment: shown,
                source: segment.source.clone(),
                what,
                at: Some(at),
                contained: CONTAINED.contains(&rule.id),
                harms: harms(rule, &view),
            });
            if found.len() >= 512 {
                return found;
            }
        }
    }
    found
}
