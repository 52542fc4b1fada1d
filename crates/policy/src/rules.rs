//! The rules: what is never done, and what is asked about.
//!
//! A rule has an id and a reason in plain words; `tests/corpus/rules.txt` has examples of each.
//! Most rules are triggered by the declarations in [`crate::programs`]; those about files test the
//! effects of a command, whatever program causes them. [`matches`] reports every rule that matches,
//! with the part of the command it matched.

mod contained;
mod doubts;
mod files;
mod machine;
mod outward;

use std::cell::LazyCell;
use std::collections::{BTreeSet, HashMap};
use std::sync::LazyLock;

use hermes_types::{Egress, ProtectedClass};
use serde::Serialize;

use crate::allowance::classes_of_paths;
use crate::file_effects::{FileEffect, file_effects, named_paths};
use crate::paths::KnownPaths;
use crate::programs::{self, Invocation, PathAccess, When};
use crate::shell::{Redirect, RedirectOperator, Script, Segment, Surroundings, Word};

/// The force of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tier {
    /// A person must agree.
    Ask,
    /// No person can agree.
    Floor,
}

#[derive(Debug)]
struct Rule {
    /// A stable name, such as `delete-root`.
    id: &'static str,
    tier: Tier,
    /// Why, in one line, for people.
    reason: &'static str,
    /// It also concerns commands inside a container that the command starts.
    reaches_inside: bool,
    trigger: Trigger,
    /// A condition under which programs do not trigger it.
    unless: When,
    /// The uses of programs that a model may allow, see [`contained`].
    contained: When,
    /// The harm even where nothing outside the environment can be damaged.
    leak: Leak,
}

/// The commands a rule tests, apart from the declarations of programs that name it.
#[derive(Debug)]
enum Trigger {
    /// Nothing else.
    Programs,
    /// Commands that touch files.
    Files(fn(&RuleContext<'_>) -> bool),
    /// Every command.
    Every(fn(&RuleContext<'_>) -> bool),
}

const fn floor(id: &'static str, reason: &'static str) -> Rule {
    let trigger = Trigger::Programs;
    let never = When::Any(&[]);
    Rule {
        id,
        tier: Tier::Floor,
        reason,
        reaches_inside: true,
        trigger,
        unless: When::Any(&[]),
        contained: never,
        leak: Leak::Nothing,
    }
}

const fn ask(id: &'static str, reason: &'static str) -> Rule {
    Rule { tier: Tier::Ask, reaches_inside: false, ..floor(id, reason) }
}

impl Rule {
    const fn on_files(self, test: fn(&RuleContext<'_>) -> bool) -> Self {
        Self { trigger: Trigger::Files(test), ..self }
    }

    const fn on_every(self, test: fn(&RuleContext<'_>) -> bool) -> Self {
        Self { trigger: Trigger::Every(test), ..self }
    }

    const fn inside(self) -> Self {
        Self { reaches_inside: true, ..self }
    }

    const fn unless(self, unless: When) -> Self {
        Self { unless, ..self }
    }

    const fn contained(self, contained: When) -> Self {
        Self { contained, ..self }
    }

    const fn leaks(self, leak: Leak) -> Self {
        Self { leak, ..self }
    }
}

/// A rule that matched, and where.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Match {
    /// The rule's id.
    pub id: &'static str,
    /// The force here: inside a container that a command starts, the floor is a question.
    #[serde(skip)]
    pub tier: Tier,
    /// The rule's reason.
    pub reason: &'static str,
    /// The part of the command that matched.
    pub segment: String,
    /// The text of the script that part was read from.
    #[serde(skip)]
    pub source: String,
    /// The action and its target, the same for every spelling of the command.
    #[serde(skip)]
    pub(crate) what: String,
    /// Which segment of the script, when it is one.
    #[serde(skip)]
    pub(crate) at: Option<usize>,
    /// The harm where only some directories of the owner can be reached.
    #[serde(skip)]
    pub(crate) harms: Harms,
    /// The harm where nothing outside the environment can be damaged.
    #[serde(skip)]
    pub(crate) leak: Leak,
    /// The protected classes of the files that it concerns.
    #[serde(skip)]
    pub(crate) classes: BTreeSet<ProtectedClass>,
    /// Whether the harm is contained, see [`contained`].
    #[serde(skip)]
    pub(crate) is_contained: bool,
}

/// The reach of the harm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Harms {
    /// Only the place it happens in.
    Place,
    /// Something that outlives the place.
    Owner,
}

/// What a command does through the network of an environment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Leak {
    Nothing,
    /// It sends data away.
    Data,
    /// It asks another machine for something that only machines of the owner give away.
    PrivateAccess,
}

impl Leak {
    pub(crate) fn is_possible(self, egress: Egress) -> bool {
        match self {
            Self::Nothing => false,
            Self::Data => egress.sends_owner_data,
            Self::PrivateAccess => egress.reaches_private_addresses,
        }
    }
}

/// The id of matches that come from the owner's own ask rules.
const BY_OWNER: &str = "owner-rule";

impl Match {
    /// A match of a part of the command, not of one of its segments.
    pub(crate) fn new(
        id: &'static str,
        tier: Tier,
        reason: &'static str,
        segment: String,
        source: &str,
    ) -> Self {
        let what = format!("{id}:{segment}");
        Self {
            id,
            tier,
            reason,
            segment,
            source: source.to_owned(),
            what,
            at: None,
            harms: Harms::Owner,
            leak: Leak::Nothing,
            classes: BTreeSet::new(),
            is_contained: false,
        }
    }

    pub(crate) fn by_owner(segment: &Segment) -> Self {
        let reason = "the owner wants to be asked about this command";
        Self::new(BY_OWNER, Tier::Ask, reason, segment.show(), &segment.source)
    }

    /// Whether a part of the script could not be read, so that the floor may be in it.
    pub(crate) fn hides_floor(&self) -> bool {
        doubts::UNREAD.contains(&self.id)
    }

    pub(crate) fn is_by_owner(&self) -> bool {
        self.id == BY_OWNER
    }
}

/// A command with everything the rules need to know about it.
pub(crate) struct RuleContext<'a> {
    pub(crate) invocation: Invocation<'a>,
    effects: &'a [FileEffect],
    pub(crate) paths: KnownPaths<'a>,
    /// The remotes that the script adds to repositories.
    pub(crate) added_remotes: &'a [Word],
    /// The files that redirections of the script open without replacing their content.
    opened: &'a [String],
}

impl RuleContext<'_> {
    fn segment(&self) -> &Segment {
        self.invocation.segment
    }

    fn name(&self) -> &str {
        self.invocation.name()
    }

    fn any(&self, test: impl Fn(&FileEffect) -> bool) -> bool {
        self.effects.iter().any(test)
    }

    /// Whether a deleted path, alone or with everything below it, passes the test.
    fn any_delete(&self, test: impl Fn(&str, bool) -> bool) -> bool {
        self.any(|effect| match effect.access {
            PathAccess::Delete => test(&effect.path, false),
            PathAccess::DeleteTree => test(&effect.path, true),
            _ => false,
        })
    }

    /// Whether a path that is written or deleted passes the test.
    fn any_change(&self, test: impl Fn(&str, bool) -> bool) -> bool {
        self.any_write(|path| test(path, false)) || self.any_delete(test)
    }

    pub(crate) fn any_write(&self, test: impl Fn(&str) -> bool) -> bool {
        self.any(|effect| effect.access.changes() && test(&effect.path))
    }

    /// Whether a path whose content may be lost passes the test.
    fn any_overwrite(&self, test: impl Fn(&str) -> bool) -> bool {
        self.any(|effect| effect.access == PathAccess::Write && test(&effect.path))
    }

    fn any_possible_change(&self, test: impl Fn(&str) -> bool) -> bool {
        self.any(|effect| effect.access == PathAccess::Unknown && test(&effect.path))
    }

    pub(crate) fn any_read(&self, test: impl Fn(&str) -> bool) -> bool {
        self.any(|effect| {
            matches!(effect.access, PathAccess::Read | PathAccess::ReadTree) && test(&effect.path)
        })
    }

    /// Whether files that are read, by a pattern or as a tree, may hold keys.
    fn reads_credentials_below(&self) -> bool {
        self.any(|effect| match effect.access {
            PathAccess::ReadTree => self.paths.is_above_credentials(&effect.path, true),
            PathAccess::Read => {
                effect.path.contains(['*', '?', '[']) && self.paths.is_above_credentials(&effect.path, false)
            }
            _ => false,
        })
    }
}

/// All rules about commands.
fn all() -> impl Iterator<Item = &'static Rule> {
    [files::RULES, machine::RULES, outward::RULES].into_iter().flatten()
}

static BY_ID: LazyLock<HashMap<&'static str, &'static Rule>> =
    LazyLock::new(|| all().map(|rule| (rule.id, rule)).collect());

/// The reach of a rule that matched: an effect on files must touch the owner's, and a rule about
/// the machine harms the place only.
fn harms(rule: &Rule, context: &RuleContext<'_>) -> Harms {
    let stays = match rule.trigger {
        Trigger::Files(_) => !context.any(|effect| context.paths.touches_owned(&effect.path)),
        Trigger::Programs | Trigger::Every(_) => machine::RULES.iter().any(|known| known.id == rule.id),
    };
    if stays { Harms::Place } else { Harms::Owner }
}

/// The number of matches after which only the floor is examined further.
pub(crate) const MAX_MATCHES: usize = 512;

/// The paths a command touches, whatever it does to them.
fn paths_of(effects: &[FileEffect]) -> String {
    let mut paths: Vec<&str> = effects.iter().map(|effect| effect.path.as_str()).collect();
    paths.sort_unstable();
    paths.dedup();
    paths.join("\n")
}

/// The files that redirections of a command open to read or to append.
fn opened_files(segment: &Segment) -> impl Iterator<Item = String> {
    let keeps =
        |redirect: &&Redirect| matches!(redirect.operator, RedirectOperator::Read | RedirectOperator::Append);
    segment.redirects.iter().filter(keeps).map(|redirect| segment.path(&redirect.target))
}

/// The rules that match one command.
fn matching_rules(context: &RuleContext<'_>, inside: bool) -> Vec<&'static Rule> {
    let mut found: Vec<&'static Rule> = Vec::new();
    for ask in context.invocation.program.asks {
        let Some(rule) = BY_ID.get(ask.rule).copied() else { continue };
        if !found.iter().any(|known| known.id == rule.id)
            && !rule.unless.holds(&context.invocation)
            && ask.matches(context)
        {
            found.push(rule);
        }
    }
    let by_test = all().filter(|rule| match rule.trigger {
        Trigger::Programs => false,
        Trigger::Files(test) => !context.effects.is_empty() && test(context),
        Trigger::Every(test) => test(context),
    });
    found.extend(by_test);
    found.retain(|rule| !inside || rule.reaches_inside);
    found
}

/// All rules that match a script.
pub(crate) fn matches(script: &Script, around: &Surroundings<'_>, owned: &[String]) -> Vec<Match> {
    let paths = KnownPaths::new(around.home, around.hermes_home, around.cwd, owned);
    let mut found: Vec<Match> = script.doubts.iter().map(doubts::doubt_match).collect();
    let added =
        script.segments.iter().filter_map(|segment| programs::added_remote(&Invocation::new(segment)));
    let added_remotes: Vec<Word> = added.cloned().collect();
    // Where a rule matched a command.
    let mut known: HashMap<(&str, String), usize> = HashMap::new();
    let opened: Vec<String> = script.segments.iter().flat_map(opened_files).collect();
    for (at, segment) in script.segments.iter().enumerate() {
        let invocation = Invocation::new(segment);
        let effects = file_effects(&invocation, around.home);
        let context = RuleContext {
            invocation,
            effects: &effects,
            paths,
            added_remotes: &added_remotes,
            opened: &opened,
        };
        let inside = segment.via.iter().any(|via| programs::find(via).contains);
        let shown = LazyCell::new(|| segment.show());
        let classes = LazyCell::new(|| {
            let named = named_paths(segment, around.home);
            let paths = effects.iter().map(|effect| &effect.path).chain(&named).map(String::as_str);
            classes_of_paths(paths, around.home)
        });
        for rule in matching_rules(&context, inside) {
            if found.len() >= MAX_MATCHES && (inside || rule.tier != Tier::Floor) {
                continue;
            }
            let is_contained = contained::is_contained(rule, &context);
            let index = known.entry((rule.id, shown.clone())).or_insert(found.len());
            if let Some(known) = found.get_mut(*index) {
                // The same command may run in another directory.
                known.is_contained &= is_contained;
                continue;
            }
            let tier = if inside { Tier::Ask } else { rule.tier };
            let mut matched = Match::new(rule.id, tier, rule.reason, shown.clone(), &segment.source);
            if let Trigger::Files(_) = rule.trigger {
                matched.what = format!("{}:{}", rule.id, paths_of(&effects));
            }
            found.push(Match {
                at: Some(at),
                harms: harms(rule, &context),
                leak: rule.leak,
                classes: classes.clone(),
                is_contained,
                ..matched
            });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_declared_rule_exists_and_every_rule_is_used() {
        let declared: Vec<&str> =
            programs::all().flat_map(|program| program.asks).map(|ask| ask.rule).collect();
        for id in &declared {
            assert!(BY_ID.contains_key(id), "{id}");
        }
        for rule in all() {
            assert!(declared.contains(&rule.id) || !matches!(rule.trigger, Trigger::Programs), "{}", rule.id);
        }
    }

    #[test]
    fn rules_have_unique_ids_reasons_of_one_line_and_examples() {
        let examples = include_str!("../tests/corpus/rules.txt");
        for rule in all() {
            assert_eq!(all().filter(|other| other.id == rule.id).count(), 1, "{}", rule.id);
            assert!(!rule.reason.is_empty() && rule.reason.len() < 100, "{}", rule.id);
            let tier = if rule.tier == Tier::Floor { "floor" } else { "ask" };
            let label = format!("#: {tier} {}\n", rule.id);
            assert!(examples.contains(&label) || rule.id == "delete-owner-directory", "{label}");
        }
    }
}
