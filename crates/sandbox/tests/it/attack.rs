//! Attacks: commands that do something forbidden. Each runs twice: without a jail, where it must
//! succeed, because an attack that never works proves nothing; and in a jail, where it must fail.

use std::process::{Child, Command, Stdio};

use hermes_sandbox::Jail;
use hermes_testkit::prerequisite::require_root;

use crate::fixture::{REFUSED, SECRET, TestUser, test_users};

type Adjust = Box<dyn Fn(&TestUser, &mut Jail)>;
type Words = Box<dyn Fn(&TestUser) -> Vec<String>>;

/// The user of the control run, which proves that the attack works.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Control {
    /// The same user, without a jail.
    Same,
    /// Root: only root may do this even without a jail.
    Root,
    /// The same user as the owner of new namespaces, created by `unshare` with these flags.
    Namespaces(&'static str),
}

pub(crate) struct Attack {
    words: Words,
    free_words: Option<Words>,
    control: Control,
    adjust: Adjust,
}

/// A shell attack. It succeeds if the last command succeeds.
pub(crate) fn shell(script: impl Fn(&TestUser) -> String + 'static) -> Attack {
    attack(move |user| vec!["bash".into(), "-c".into(), exit_code_script(&script(user))])
}

/// One of the testbed's attacks.
pub(crate) fn testbed<const N: usize>(words: impl Fn(&TestUser) -> [String; N] + 'static) -> Attack {
    attack(move |user| {
        let mut all = vec![user.path_str("testbed"), "attack".into()];
        all.extend(words(user));
        all
    })
}

/// One of the testbed's attacks, with fixed arguments.
pub(crate) fn testbed_command(words: &'static str) -> Attack {
    attack(move |user| {
        let mut all = vec![user.path_str("testbed"), "attack".into()];
        all.extend(words.split(' ').map(str::to_owned));
        all
    })
}

fn attack(words: impl Fn(&TestUser) -> Vec<String> + 'static) -> Attack {
    Attack { words: Box::new(words), free_words: None, control: Control::Same, adjust: Box::new(|_, _| {}) }
}

fn exit_code_script(script: &str) -> String {
    format!("if {script}; then exit 0; else exit {REFUSED}; fi")
}

impl Attack {
    pub(crate) fn control(mut self, control: Control) -> Self {
        self.control = control;
        self
    }

    /// The control runs this shell script instead.
    pub(crate) fn control_script(mut self, script: impl Fn(&TestUser) -> String + 'static) -> Self {
        self.free_words =
            Some(Box::new(move |user| vec!["bash".into(), "-c".into(), exit_code_script(&script(user))]));
        self
    }

    pub(crate) fn jail(mut self, adjust: impl Fn(&TestUser, &mut Jail) + 'static) -> Self {
        self.adjust = Box::new(adjust);
        self
    }

    pub(crate) fn assert_refused(&self) {
        test_users().iter().for_each(|user| self.assert_refused_for(user));
    }

    pub(crate) fn assert_refused_for(&self, user: &TestUser) {
        let words = self.free_words.as_ref().unwrap_or(&self.words)(user);
        match self.control {
            Control::Same => {
                assert_eq!(user.run_unconfined(&words).code, 0, "control of uid {}: {words:?}", user.uid)
            }
            Control::Root if require_root(&format!("prove that this attack works: {words:?}")) => {
                let output = user.run_unconfined_as(0, &words);
                assert_eq!(output.code, 0, "control as root: {words:?} {output:?}");
            }
            Control::Root => {}
            Control::Namespaces(flags) => {
                let mut all = vec!["unshare".to_owned(), flags.to_owned(), "--".to_owned()];
                all.extend(words.clone());
                let output = user.run_unconfined(&all);
                assert_eq!(output.code, 0, "control in namespaces of uid {}: {words:?} {output:?}", user.uid);
            }
        }
        let words = (self.words)(user);
        let (program, arguments) = words.split_first().unwrap();
        let program = if program == "bash" { "/bin/bash" } else { program };
        let mut jail = user.jail(program, arguments);
        (self.adjust)(user, &mut jail);
        let output = user.run_confined(&jail);
        assert_eq!(output.code, REFUSED, "uid {}, confined: {words:?} {output:?}", user.uid);
        assert!(!output.stdout.contains(SECRET), "{output:?}");
    }
}

/// A process of the same user outside the jail, with one secret in its environment and one as its
/// standard input.
pub(crate) struct Victim(Child);

impl Victim {
    pub(crate) fn spawn(user: &TestUser) -> Self {
        let secret = std::fs::File::open(user.path("home/.ssh/id")).unwrap();
        let mut command: Command = user.command(user.uid, "sleep");
        command.arg("60").env("WORD", SECRET).stdin(Stdio::from(secret));
        Self(command.spawn().unwrap())
    }

    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }

    pub(crate) fn is_alive(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}
