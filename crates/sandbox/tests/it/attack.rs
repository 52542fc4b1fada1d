//! An attack is a command that does something forbidden. It is run twice: free, where it must succeed, because an
//! attack that never works proves nothing; and confined, where it must be refused.

use std::process::{Child, Command, Stdio};

use hermes_sandbox::Jail;

use crate::bed::{Bed, REFUSED, SECRET, everybody};

type Adjust = Box<dyn Fn(&Bed, &mut Jail)>;
type Words = Box<dyn Fn(&Bed) -> Vec<String>>;

/// Who proves that the attack works.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Control {
    /// The same person, free.
    Same,
    /// Root: nobody else may do this even when free.
    Root,
    /// The same person as the owner of new namespaces, which `unshare` makes.
    Namespaces(&'static str),
}

pub(crate) struct Attack {
    words: Words,
    free_words: Option<Words>,
    control: Control,
    adjust: Adjust,
}

/// An attack in the shell. It succeeds if the last command does.
pub(crate) fn shell(script: impl Fn(&Bed) -> String + 'static) -> Attack {
    attack(move |bed| vec!["bash".into(), "-c".into(), as_attack(&script(bed))])
}

/// One of the testbed's attacks.
pub(crate) fn testbed<const N: usize>(words: impl Fn(&Bed) -> [String; N] + 'static) -> Attack {
    attack(move |bed| {
        let mut all = vec![bed.text("testbed"), "attack".into()];
        all.extend(words(bed));
        all
    })
}

/// One of the testbed's attacks, with fixed arguments.
pub(crate) fn plain(words: &'static str) -> Attack {
    attack(move |bed| {
        let mut all = vec![bed.text("testbed"), "attack".into()];
        all.extend(words.split(' ').map(str::to_owned));
        all
    })
}

fn attack(words: impl Fn(&Bed) -> Vec<String> + 'static) -> Attack {
    Attack { words: Box::new(words), free_words: None, control: Control::Same, adjust: Box::new(|_, _| {}) }
}

fn as_attack(script: &str) -> String {
    format!("if {script}; then exit 0; else exit {REFUSED}; fi")
}

impl Attack {
    pub(crate) fn control(mut self, control: Control) -> Self {
        self.control = control;
        self
    }

    /// The control does the same thing elsewhere, with these words of the shell.
    pub(crate) fn freely(mut self, script: impl Fn(&Bed) -> String + 'static) -> Self {
        self.free_words =
            Some(Box::new(move |bed| vec!["bash".into(), "-c".into(), as_attack(&script(bed))]));
        self
    }

    pub(crate) fn jail(mut self, adjust: impl Fn(&Bed, &mut Jail) + 'static) -> Self {
        self.adjust = Box::new(adjust);
        self
    }

    pub(crate) fn is_refused(&self) {
        everybody().iter().for_each(|bed| self.is_refused_to(bed));
    }

    pub(crate) fn is_refused_to(&self, bed: &Bed) {
        let words = self.free_words.as_ref().unwrap_or(&self.words)(bed);
        let root = rustix::process::getuid().is_root();
        match self.control {
            Control::Same => assert_eq!(bed.free(&words).code, 0, "control of uid {}: {words:?}", bed.uid),
            Control::Root if root => {
                let ended = bed.free_as(0, &words);
                assert_eq!(ended.code, 0, "control as root: {words:?} {ended:?}");
            }
            Control::Root => eprintln!("only root could prove that this attack works: {words:?}"),
            Control::Namespaces(flags) => {
                let mut all = vec!["unshare".to_owned(), flags.to_owned(), "--".to_owned()];
                all.extend(words.clone());
                let ended = bed.free(&all);
                assert_eq!(ended.code, 0, "control in namespaces of uid {}: {words:?} {ended:?}", bed.uid);
            }
        }
        let words = (self.words)(bed);
        let (program, arguments) = words.split_first().unwrap();
        let program = if program == "bash" { "/bin/bash" } else { program };
        let mut jail = bed.jail(program, arguments);
        (self.adjust)(bed, &mut jail);
        let ended = bed.confined(&jail);
        assert_eq!(ended.code, REFUSED, "uid {}, confined: {words:?} {ended:?}", bed.uid);
        assert!(!ended.out.contains(SECRET), "{ended:?}");
    }
}

/// A process of the same person outside the jail, with a secret in its environment and one in its hands.
pub(crate) struct Victim(Child);

impl Victim {
    pub(crate) fn of(bed: &Bed) -> Self {
        let secret = std::fs::File::open(bed.path("home/.ssh/id")).unwrap();
        let mut command: Command = bed.command(bed.uid, "sleep");
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
