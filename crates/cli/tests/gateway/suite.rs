//! What every platform must pass, each check with the whole program between a strict platform and a scripted model.
//!
//! | check | what is so |
//! |---|---|
//! | `connects` | it is shown as up, and answers in a direct chat and in a group |
//! | `reconnects_after_a_cut` | nothing that was said meanwhile is lost, and nothing is answered twice |
//! | `notices_silence` | a connection that says nothing is noticed by the second sign of life, shown as down, and heals |
//! | `is_not_held_up_by_a_slow_platform` | what is only shown is not waited for, and what hung is said once |
//! | `answers_replayed_messages_once` | the last messages, all told again and again |
//! | `answers_duplicates_once` | the same message twice at once, and once more after a crash |
//! | `obeys_rate_limits` | nothing comes before the platform wants it, nothing is lost, nothing is doubled |
//! | `finds_what_it_may_have_said` | a message was taken and nobody said so: it is not said again |
//! | `hears_what_is_quoted` | what is answered is told to the model |
//! | `splits_long_answers` | every message is whole and no longer than allowed; together they are the answer |
//! | `stands_any_text` | calls to everybody, markup, control characters, two directions, nothing visible, very long lines |
//! | `caps_media` | a file that is too large is given up while it comes |
//! | `is_silent_to_strangers` | in a group nothing at all is done; in a direct chat one answer, then nothing |
//! | `heeds_the_right_button_once` | others are told no, and two presses are one answer |
//! | `shows_who_decided` | the question says who decided and when, and has no buttons any more |
//! | `keeps_questions_over_a_crash` | a question is put once and answered in words after a crash |
//! | `obeys_commands_first` | a command is obeyed in the middle of work, and a new conversation is new |
//! | `is_freed_by_stop` | `/stop` ends the wait for a command and for an answer |
//! | `answers_what_came_while_it_was_dead` | in its order, once |
//! | `survives_a_crash_in_the_model` | killed while the model is asked: one answer |
//! | `survives_a_crash_in_a_command` | killed while a command runs: it is not run again, and the model is told |
//! | `survives_a_crash_after_sending` | killed when a message was taken and nobody said so: one message |
//! | `survives_a_crash_before_sending` | killed while nothing can be sent: one message |
//!
//! A platform is one more line at the end of this file. What it cannot do it says itself, with the reason, which is printed.

mod connection;
mod crash;
mod delivery;
mod people;
mod words;

use std::io::Write;

use hermes_testkit::Venue;
use hermes_testkit::venue::{Able, Unable};

/// Tells why a check does not apply.
fn note<V: Venue>(check: &str, able: Able) {
    if let Err(Unable(why)) = able {
        // Not through the test's own output, which nobody sees when it passes.
        writeln!(std::io::stderr(), "DOES NOT APPLY {}: {check}: {why}", V::WORD).ok();
    }
}

macro_rules! checks {
    ($platform:ident, $venue:ty, $($part:ident: $($check:ident)*;)*) => {
        mod $platform {
            $($(
                #[tokio::test]
                async fn $check() {
                    super::note::<$venue>(stringify!($check), super::$part::$check::<$venue>().await);
                }
            )*)*
        }
    };
}

macro_rules! suite {
    ($platform:ident, $venue:ty) => {
        checks! {
            $platform, $venue,
            connection:
                connects reconnects_after_a_cut notices_silence is_not_held_up_by_a_slow_platform;
            delivery:
                answers_replayed_messages_once answers_duplicates_once obeys_rate_limits
                finds_what_it_may_have_said hears_what_is_quoted;
            words:
                splits_long_answers stands_any_text caps_media;
            people:
                is_silent_to_strangers heeds_the_right_button_once shows_who_decided
                keeps_questions_over_a_crash obeys_commands_first is_freed_by_stop;
            crash:
                answers_what_came_while_it_was_dead survives_a_crash_in_the_model survives_a_crash_in_a_command
                survives_a_crash_after_sending survives_a_crash_before_sending;
        }
    };
}

suite!(discord, hermes_testkit::discord::Server);
