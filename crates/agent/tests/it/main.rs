//! Tools, scripts and turns in real execution environments. Each behavior is tested on every
//! backend.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a failed step fails the test")]

mod approvals;
mod chat;
mod env;
mod files;
mod fixture;
mod interrupts;
mod long;
mod patch;
mod process;
mod process_notices;
mod questions;
mod replies;
mod restarts;
mod review;
mod schema;
mod scripts;
mod terminal;
mod web;

/// A test of each behavior on one backend.
macro_rules! behaviors {
    ($fixture:expr => $($file:ident::$behavior:ident)*) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $behavior() {
                let fixture = $fixture;
                crate::$file::$behavior(&fixture).await;
                fixture.remove().await;
            }
        )*
    };
    ($fixture:expr, tools) => {
        behaviors! { $fixture =>
            terminal::the_exit_code_comes_first_and_the_shell_keeps_its_state
            terminal::a_workdir_may_have_any_name_and_holds_for_one_command
            terminal::a_long_output_is_shortened_and_can_be_read_whole
            terminal::a_detached_command_runs_and_gets_a_hint
            terminal::an_interrupt_ends_a_command_and_keeps_its_output
            terminal::a_recreated_environment_is_reported
            terminal::escape_sequences_are_removed
            terminal::a_result_too_long_for_a_conversation_is_spilled_to_a_file
            process::a_background_command_can_be_followed_to_its_end
            process::a_kill_ends_everything_that_a_command_started
            process::input_is_written_with_and_without_a_terminal
            process::a_command_that_cannot_start_is_no_background_process
            process::a_process_is_found_by_id_prefix_or_pid_only
            process::a_wait_ends_with_the_turn
            files::lines_are_counted_and_returned_unchanged
            files::a_missing_file_is_reported_with_similar_names
            files::binary_data_is_rejected_with_advice
            files::a_read_that_is_too_large_says_how_to_page
            files::a_file_is_written_with_its_directories_and_keeps_its_mode
            files::a_changed_file_keeps_its_line_ends_and_byte_order_mark
            files::writing_through_a_link_keeps_the_link
            files::the_home_is_the_same_for_every_tool
            files::a_redacted_secret_is_not_overwritten
            files::repeated_reads_and_failed_edits_get_a_hint_and_are_not_refused
            files::a_search_finds_all_matches_and_counts_them
            files::a_pattern_is_never_parsed_as_an_option
            patch::a_text_is_replaced_and_a_diff_is_returned
            patch::invalid_bytes_are_preserved
            patch::a_patch_changes_all_files_or_none
            patch::a_concurrent_change_is_not_overwritten
        }
    };
    ($fixture:expr, scripts) => {
        behaviors! { $fixture =>
            scripts::output_and_call_results_of_a_script_are_returned
            scripts::every_function_does_what_its_tool_does
            scripts::errors_of_a_script_are_reported
            scripts::results_are_never_mixed_up_between_threads_and_processes
            scripts::a_script_can_use_the_helper_functions
            scripts::a_connection_without_the_token_of_the_run_gets_nothing
            scripts::an_invalid_message_ends_only_its_connection
            scripts::refused_calls_count_too
            scripts::a_script_of_a_session_without_tools_can_call_none
            scripts::parameters_that_outlive_a_call_are_rejected
            scripts::nothing_of_a_script_outlives_it
            scripts::a_timeout_kills_a_script_and_its_calls_and_keeps_its_output
            scripts::an_interrupt_ends_a_script_and_its_running_call
            scripts::a_long_output_is_shortened_and_stderr_is_shown_only_on_failure
            scripts::a_script_gets_configured_variables_and_not_exported_ones
            scripts::a_script_changes_nothing_in_its_session
            scripts::a_strict_script_has_an_empty_directory_that_is_removed
            scripts::without_python_nothing_runs_and_the_error_gives_advice
            scripts::a_killed_hermes_leaves_nothing_of_a_script
            scripts::a_project_module_can_be_imported_and_shadows_none_of_python
        }
    };
}

mod local {
    behaviors!(crate::fixture::Fixture::local(), tools);
    behaviors!(crate::fixture::Fixture::local(), scripts);
}

mod sandbox {
    behaviors!(crate::fixture::Fixture::sandbox(), tools);
    behaviors!(crate::fixture::Fixture::sandbox(), scripts);
}

mod docker {
    behaviors!(crate::fixture::Fixture::docker("bash"), scripts);
}
