//! Hands at work in real places. What holds in every place is one list, tried on each backend.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on should stop")]

mod bed;
mod ground;
mod script;

/// Each behavior, by the file it is in.
macro_rules! behaviors {
    ($ground:expr => $($file:ident::$behavior:ident)*) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $behavior() {
                let ground = $ground;
                crate::$file::$behavior(&ground).await;
                ground.leave().await;
            }
        )*
    };
    ($ground:expr) => {
        behaviors! { $ground =>
            script::what_a_script_prints_and_what_its_calls_answer_comes_back
            script::every_function_does_what_its_tool_does
            script::what_is_wrong_with_a_script_is_told
            script::answers_are_never_crossed_between_threads_and_processes
            script::a_script_has_the_conveniences_of_its_module
            script::a_connection_without_the_token_of_the_run_gets_nothing
            script::whatever_a_client_sends_costs_nothing_but_its_connection
            script::calls_that_are_refused_are_counted_too
            script::a_session_without_tools_runs_a_script_that_can_call_none
            script::what_outlives_a_call_cannot_be_asked_for
            script::nothing_of_a_script_outlives_it
            script::at_its_deadline_a_script_and_its_calls_are_killed_and_what_it_printed_is_kept
            script::an_interrupt_ends_a_script_and_the_call_it_waits_for
            script::of_a_long_output_beginning_and_end_are_shown_and_errors_only_if_it_failed
            script::a_script_sees_what_was_given_and_not_what_the_session_exported
            script::a_script_changes_nothing_in_its_session
            script::a_strict_script_has_an_empty_directory_that_is_gone_afterwards
            script::without_python_nothing_runs_and_the_remedy_is_told
            script::when_hermes_is_killed_nothing_of_a_script_is_left
            script::a_module_beside_a_script_can_be_imported_and_stands_in_for_none_of_pythons
        }
    };
}

mod local {
    behaviors!(crate::ground::Ground::local());
}

mod sandbox {
    behaviors!(crate::ground::Ground::sandbox());
}

mod docker {
    behaviors!(crate::ground::Ground::docker("bash"));
}
