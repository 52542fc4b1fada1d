//! Checks that every platform must pass, with the whole program between a strict platform and a
//! scripted model.
//!
//! | check | expectation |
//! |---|---|
//! | `connects` | the state is up, and it answers in a direct message and in a group |
//! | `reconnects_after_a_cut` | no message is lost or answered twice |
//! | `detects_a_dead_connection` | a silent connection is detected by the second heartbeat, shown as down, and recovers |
//! | `is_not_blocked_by_a_slow_platform` | typing and reactions block nothing, and a hung send is delivered once |
//! | `answers_replayed_messages_once` | the last messages, delivered repeatedly |
//! | `answers_duplicates_once` | the same message twice at once, and once more after a crash |
//! | `obeys_rate_limits` | no request is early, lost or duplicated |
//! | `does_not_repeat_unconfirmed_messages` | a message whose response was lost is not sent again |
//! | `passes_on_quoted_messages` | the model gets the quoted message |
//! | `splits_long_answers` | every message is valid and within the limit; together they are the reply |
//! | `handles_any_text` | mass mentions, markup, control characters, bidirectional and invisible text, very long lines |
//! | `limits_attachment_size` | a download stops at the size limit |
//! | `ignores_strangers` | nothing happens in a group; one reply in a direct message, then nothing |
//! | `accepts_one_button_press_from_the_right_person` | others are rejected, and two presses are one answer |
//! | `shows_who_answered` | the question shows who answered and when, and has no buttons |
//! | `keeps_questions_across_a_crash` | a question is posted once and can be answered by command after a crash |
//! | `runs_commands_during_a_turn` | a command runs during a turn, and a new conversation is empty |
//! | `stop_ends_waits` | `/stop` ends a running command and an open question |
//! | `answers_messages_sent_while_it_was_down` | in order, once |
//! | `survives_a_crash_in_the_model` | killed during a model request: one reply |
//! | `survives_a_crash_in_a_command` | killed while a command runs: it does not run again, and the model is informed |
//! | `survives_a_crash_after_sending` | killed after an unconfirmed send: one message |
//! | `survives_a_crash_before_sending` | killed while nothing can be sent: one message |
//!
//! To add a platform, add a line at the end of this file. A platform declares which features it
//! does not support, with a reason that is printed.

mod access;
mod connection;
mod crash;
mod delivery;
mod text;

use std::io::Write;

use hermes_testkit::FakePlatform;
use hermes_testkit::fake_platform::{NotSupported, Supported};

/// Prints why a check does not apply.
fn print_if_unsupported<V: FakePlatform>(check: &str, supported: Supported) {
    if let Err(NotSupported(reason)) = supported {
        // Written to stderr directly: libtest hides the output of passing tests.
        writeln!(std::io::stderr(), "DOES NOT APPLY {}: {check}: {reason}", V::NAME).ok();
    }
}

macro_rules! checks {
    ($platform:ident, $server:ty, $($part:ident: $($check:ident)*;)*) => {
        mod $platform {
            $($(
                #[tokio::test]
                async fn $check() {
                    super::print_if_unsupported::<$server>(stringify!($check), super::$part::$check::<$server>().await);
                }
            )*)*
        }
    };
}

macro_rules! suite {
    ($platform:ident, $server:ty) => {
        checks! {
            $platform, $server,
            connection:
                connects reconnects_after_a_cut detects_a_dead_connection is_not_blocked_by_a_slow_platform;
            delivery:
                answers_replayed_messages_once answers_duplicates_once obeys_rate_limits
                does_not_repeat_unconfirmed_messages passes_on_quoted_messages;
            text:
                splits_long_answers handles_any_text limits_attachment_size;
            access:
                ignores_strangers accepts_one_button_press_from_the_right_person shows_who_answered
                keeps_questions_across_a_crash runs_commands_during_a_turn stop_ends_waits;
            crash:
                answers_messages_sent_while_it_was_down survives_a_crash_in_the_model survives_a_crash_in_a_command
                survives_a_crash_after_sending survives_a_crash_before_sending;
        }
    };
}

suite!(discord, hermes_testkit::discord::DiscordServer);
