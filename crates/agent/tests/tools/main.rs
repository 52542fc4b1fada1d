//! Hands at work in real places. What holds in every place is one list, tried on each backend.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on should stop")]

mod bed;
mod files;
mod ground;
mod guard;
mod patch;
mod process;
mod schema;
mod shell;
mod web;

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
            shell::the_exit_code_comes_first_and_the_state_stays
            shell::a_directory_for_one_command_may_have_any_name_and_does_not_stick
            shell::a_long_output_is_shown_by_its_ends_and_can_be_read_whole
            shell::what_detaches_or_serves_is_run_and_advised_about
            shell::an_interrupt_ends_a_command_and_keeps_what_it_said
            shell::a_place_that_was_made_anew_says_so
            shell::what_is_for_a_screen_is_left_out
            shell::an_answer_too_long_for_a_conversation_is_put_into_a_file
            process::a_background_command_can_be_followed_to_its_end
            process::what_is_killed_is_gone_with_all_it_started
            process::input_is_written_with_and_without_a_terminal
            process::a_command_that_cannot_start_is_no_background_process
            process::only_what_was_asked_for_is_found
            process::a_wait_ends_with_the_turn
            files::lines_are_counted_and_shown_as_they_are
            files::a_file_that_is_not_there_brings_similar_ones
            files::what_is_not_text_is_refused_with_advice
            files::too_much_at_once_says_how_to_page
            files::a_file_is_written_whole_with_its_directories_and_its_mode
            files::what_was_there_keeps_its_line_ends_and_its_mark
            files::a_link_is_written_through_and_stays
            files::the_home_is_the_same_for_every_tool
            files::a_secret_that_was_not_shown_is_not_written_over
            files::a_model_that_goes_in_circles_is_told_and_not_refused
            files::a_search_finds_all_and_counts_truly
            files::a_search_is_never_taken_for_options
            patch::a_text_is_replaced_and_the_change_is_shown
            patch::bytes_that_are_no_text_stay
            patch::a_patch_changes_all_of_its_files_or_none
            patch::a_file_that_changed_meanwhile_is_not_overwritten
        }
    };
}

mod local {
    behaviors!(crate::ground::Ground::local());
}

mod sandbox {
    behaviors!(crate::ground::Ground::sandbox());
}
