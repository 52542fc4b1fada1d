//! Places as their callers see them. What holds in every place is one list, tried on each backend: a test is named by
//! the backend and what it should do. A backend is added with a row here and a line in `bed.rs`.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on should stop")]

mod bed;
mod container;
mod escape;
mod far;
mod files;
mod hostile;
mod jail;
mod life;
mod output;
mod peers;
mod private;
mod process;
mod proxy;
mod ready;
mod remapped;
mod restart;
mod rootless;
mod session;
mod shell;
mod world;

use bed::Peer;
use hermes_types::BackendName;
use peers::{BASH, BUSYBOX};
use session::Ground;

/// Each behavior, by the file it is in. The attribute is for all tests of the row.
macro_rules! behaviors {
    ($mark:tt $ground:expr) => {
        behaviors! { $mark $ground =>
            shell::exit_codes_are_those_of_a_shell
            shell::stdout_and_stderr_keep_their_order
            shell::directory_and_exports_stay
            shell::directory_exports_functions_and_aliases_stay
            shell::state_survives_exit_errexit_and_exec
            shell::any_value_comes_back_as_it_was
            shell::parallel_calls_never_mix_their_states
            shell::a_directory_or_variable_for_one_call_does_not_stick
            shell::a_missing_directory_is_126_and_nothing_runs
            shell::a_session_that_moved_after_the_gate_was_asked_runs_nothing
            shell::long_commands_and_long_inputs_arrive_whole
            shell::the_environment_is_what_was_given_and_nobody_elses
            shell::a_secret_is_with_its_command_and_nowhere_else
            shell::a_session_may_have_any_key_and_is_alone
            process::a_deadline_is_124_and_keeps_what_was_said
            process::an_interrupt_is_130_and_keeps_what_was_said
            process::nothing_is_left_of_a_tree_after_its_deadline
            process::what_is_left_running_does_not_hold_the_command
            process::a_kill_is_told_when_the_last_of_the_tree_is_gone
            process::a_process_of_another_time_is_not_hit
            process::background_output_is_there_at_once
            process::notices_tell_of_matches_and_of_every_end
            process::what_is_typed_needs_a_permit_of_its_own
            process::a_permit_for_anything_else_runs_nothing
            process::a_terminal_has_a_size_and_can_be_resized
            process::a_command_can_go_on_in_the_background
            process::a_dropped_command_dies_and_nothing_else
            output::two_hundred_megabytes_cost_no_memory
            output::of_a_long_output_beginning_and_end_are_shown_and_all_is_kept
            output::a_long_line_and_bytes_that_are_no_text_come_through
            output::the_output_of_a_process_can_be_paged_whole
            life::callers_at_the_same_time_get_the_same_place
            life::a_hundred_handles_share_a_place
            life::when_hermes_is_killed_the_foreground_dies_and_the_background_goes_on
            life::what_several_hermeses_started_is_in_one_list
            life::the_files_of_a_place_outlive_it_and_nobody_elses_are_touched
            life::whenever_hermes_is_killed_each_command_has_run_at_most_once
            life::an_opener_killed_at_any_moment_leaves_nothing_in_the_way
            life::a_place_that_vanished_is_made_again_and_says_so_once
            life::a_running_command_keeps_its_place_and_a_watcher_does_not
            life::nothing_of_a_place_outlives_its_lifetime_though_nobody_looks
            life::a_changed_setting_keeps_the_files_and_waits_for_what_runs
            life::places_are_listed_found_by_name_or_session_and_ended_for_good
            life::one_place_too_many_waits_until_another_is_idle
            life::a_place_that_was_removed_leaves_nothing
            life::what_is_left_of_a_place_that_is_gone_is_swept_away
            life::a_place_that_cannot_be_made_is_an_error_that_says_why
            hostile::a_guest_that_cannot_be_talked_to_is_replaced
            hostile::a_guest_that_hangs_is_seen_and_can_be_ended
            hostile::a_guest_that_breaks_the_protocol_is_replaced
            hostile::a_guest_that_dies_under_a_command_is_an_error_and_nothing_runs_twice
            hostile::a_directory_that_others_can_change_is_not_believed
            files::a_hundred_megabytes_come_back_as_they_went_in_little_memory
            files::a_link_is_written_through_and_stays_a_link
            files::a_link_that_changed_after_it_was_judged_gives_nothing_away_and_changes_nothing
            files::mode_and_owner_stay_and_a_new_file_is_like_any_other
            files::every_byte_stays_as_it_is
            files::writers_at_the_same_time_never_leave_a_mixture
            files::content_that_breaks_off_leaves_the_file_as_it_was
            files::a_search_counts_all_there_is_and_takes_no_pattern_for_an_option
            files::a_patch_makes_all_edits_or_none
            files::a_name_is_never_more_than_a_name
            files::a_name_that_is_no_text_is_listed_but_cannot_be_judged
            files::a_path_means_what_it_means_to_the_session
            files::what_is_no_file_or_never_ends_makes_nobody_wait_and_nothing_grow
            files::a_permit_is_good_for_its_own_use_place_and_session_only
        }
    };
    ($mark:tt $ground:expr => $($file:ident::$behavior:ident)*) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            #$mark
            async fn $behavior() {
                let ground = $ground;
                crate::$file::$behavior(&ground).await;
                ground.leave().await;
            }
        )*
    };
}

/// What a place that confines commands must withstand besides.
macro_rules! behaviors_of_confined_places {
    ($mark:tt $ground:expr) => {
        behaviors! { $mark $ground =>
            jail::a_place_cannot_say_what_is_known_about_it
            jail::a_place_cannot_lead_hermes_to_the_guest_of_another_place
            jail::a_place_cannot_keep_other_places_from_being_made
            jail::a_place_that_hides_its_socket_is_seen_and_swept_away
            jail::no_tree_of_a_place_is_too_deep_or_too_closed_to_be_removed
            jail::a_place_cannot_lead_what_serves_its_proxy_to_the_guest_of_another_place
            jail::a_place_of_another_run_directory_keeps_its_files_and_is_nobody_elses
            jail::what_a_place_writes_into_its_run_directory_is_not_where_the_rooms_are
        }
    };
}

/// What is true of containers only.
macro_rules! behaviors_of_containers {
    ($mark:tt $ground:expr) => {
        behaviors! { $mark $ground =>
            container::one_that_was_removed_stopped_killed_or_paused_is_made_again_and_says_so_once
            container::one_that_is_paused_is_replaced_for_whoever_opens_it
            container::somebody_elses_with_our_name_is_left_alone
            container::one_that_cannot_be_made_leaves_nothing_and_says_why
            container::whatever_an_image_wants_to_start_and_as_whom_the_guest_is_started
            container::whoever_commands_run_as_can_write_at_home_and_at_work
            container::the_first_process_buries_the_dead
            container::one_that_uses_too_much_memory_is_killed_and_the_place_goes_on
            container::one_whose_first_process_was_killed_for_its_memory_is_made_again_and_says_so_once
            container::a_hermes_killed_at_any_moment_of_a_container_leaves_none
            far::one_on_another_machine_is_a_place_like_any_other
            far::whoever_commands_run_as_has_a_guest_on_another_machine
            far::what_an_engine_on_another_machine_cannot_show_is_refused
            ready::a_new_session_gets_a_container_that_was_ready_and_nobody_elses
            ready::one_that_is_not_as_wanted_or_was_used_is_handed_to_nobody
            ready::those_that_nobody_knows_are_removed_and_no_others
            escape::commands_have_the_rights_they_were_given_and_no_others
            escape::nothing_of_the_host_is_there
            escape::devices_and_the_kernel_are_out_of_reach
            escape::cgroups_and_mounts_cannot_be_changed
            escape::a_program_that_is_another_users_gives_nothing
            escape::the_guest_of_another_place_is_not_there
            escape::of_the_first_process_commands_see_all_and_that_is_nothing_but_their_own
            escape::a_bomb_of_processes_stays_below_its_limit
            escape::without_a_network_there_is_only_loopback
        }
    };
}

/// Those that an image without bash can do.
macro_rules! behaviors_of_sh {
    ($mark:tt $ground:expr) => {
        behaviors! { $mark $ground =>
            shell::exit_codes_are_those_of_a_shell
            shell::stdout_and_stderr_keep_their_order
            shell::directory_and_exports_stay
            shell::a_directory_or_variable_for_one_call_does_not_stick
            shell::a_missing_directory_is_126_and_nothing_runs
            shell::long_commands_and_long_inputs_arrive_whole
            process::a_deadline_is_124_and_keeps_what_was_said
            process::an_interrupt_is_130_and_keeps_what_was_said
            process::background_output_is_there_at_once
            process::notices_tell_of_matches_and_of_every_end
            process::a_command_can_go_on_in_the_background
            process::a_dropped_command_dies_and_nothing_else
            output::of_a_long_output_beginning_and_end_are_shown_and_all_is_kept
            output::the_output_of_a_process_can_be_paged_whole
            life::a_place_that_vanished_is_made_again_and_says_so_once
            files::writers_at_the_same_time_never_leave_a_mixture
            files::every_byte_stays_as_it_is
            files::a_patch_makes_all_edits_or_none
        }
    };
}

/// Those of a container whose own layer cannot be written.
macro_rules! behaviors_of_read_only {
    ($mark:tt $ground:expr) => {
        behaviors_of_sh!($mark $ground);
        behaviors! { $mark $ground =>
            container::of_a_layer_that_is_read_only_nothing_can_be_written_and_all_else_can
            far::one_on_another_machine_is_a_place_like_any_other
            life::the_files_of_a_place_outlive_it_and_nobody_elses_are_touched
            life::a_place_that_was_removed_leaves_nothing
        }
    };
}

mod local {
    behaviors!([cfg(test)] crate::Ground::new(crate::BackendName::Local));
}

mod sandbox {
    behaviors!([cfg(test)] crate::Ground::new(crate::BackendName::Sandbox));
    behaviors_of_confined_places!([cfg(test)] crate::Ground::new(crate::BackendName::Sandbox));
}

mod docker {
    behaviors!([cfg(test)] crate::Ground::of(crate::Peer::named("docker", crate::BASH)));
    behaviors_of_containers!([cfg(test)] crate::Ground::of(crate::Peer::named("docker", crate::BASH)));
    behaviors_of_confined_places!([cfg(test)] crate::Ground::of(crate::Peer::named("docker", crate::BASH)));
}

mod docker_busybox {
    behaviors_of_sh!([cfg(test)] crate::Ground::of(crate::Peer::named("docker", crate::BUSYBOX)));
}

mod docker_read_only {
    behaviors_of_read_only!([cfg(test)] crate::Ground::of(crate::Peer::read_only("docker", crate::BASH)));
}

mod docker_read_only_busybox {
    behaviors_of_read_only!([cfg(test)] crate::Ground::of(crate::Peer::read_only("docker", crate::BUSYBOX)));
}

mod podman {
    behaviors!([cfg(test)] crate::Ground::of(crate::Peer::named("podman", crate::BASH)));
    behaviors_of_containers!([cfg(test)] crate::Ground::of(crate::Peer::named("podman", crate::BASH)));
    behaviors_of_confined_places!([cfg(test)] crate::Ground::of(crate::Peer::named("podman", crate::BASH)));
}

mod podman_busybox {
    behaviors_of_sh!([cfg(test)] crate::Ground::of(crate::Peer::named("podman", crate::BUSYBOX)));
}

mod podman_read_only {
    behaviors_of_read_only!([cfg(test)] crate::Ground::of(crate::Peer::read_only("podman", crate::BASH)));
}

mod podman_read_only_busybox {
    behaviors_of_read_only!([cfg(test)] crate::Ground::of(crate::Peer::read_only("podman", crate::BUSYBOX)));
}

mod podman_rootless {
    behaviors!(
        [ignore = "run by rootless::the_user_of_rootless_podman_can_do_all_of_it"]
        crate::Ground::of(crate::Peer::named("podman-rootless", crate::BASH))
    );
    behaviors_of_containers!(
        [ignore = "run by rootless::the_user_of_rootless_podman_can_do_all_of_it"]
        crate::Ground::of(crate::Peer::named("podman-rootless", crate::BASH))
    );
    behaviors_of_confined_places!(
        [ignore = "run by rootless::the_user_of_rootless_podman_can_do_all_of_it"]
        crate::Ground::of(crate::Peer::named("podman-rootless", crate::BASH))
    );
}

mod podman_rootless_busybox {
    behaviors_of_sh!(
        [ignore = "run by rootless::the_user_of_rootless_podman_can_do_all_of_it"]
        crate::Ground::of(crate::Peer::named("podman-rootless", crate::BUSYBOX))
    );
}

mod podman_rootless_users {
    behaviors! {
        [ignore = "run by rootless::the_user_of_rootless_podman_can_do_all_of_it"]
        crate::Ground::of(crate::Peer::named("podman-rootless", crate::BASH)) =>
            container::however_podman_numbers_its_users_commands_can_write
    }
}

mod podman_rootless_read_only {
    behaviors_of_read_only!(
        [ignore = "run by rootless::the_user_of_rootless_podman_can_do_all_of_it"]
        crate::Ground::of(crate::Peer::read_only("podman-rootless", crate::BASH))
    );
}
