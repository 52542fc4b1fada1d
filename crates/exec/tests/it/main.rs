//! Tests of the public interface of places. Behavior that all backends share is one list that runs
//! on each backend; a test is named by the backend and the behavior. A new backend needs a row here
//! and a line in `fixture.rs`.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on should stop")]

mod container;
mod escape;
mod files;
mod fixture;
mod guard;
mod hostile;
mod jail;
mod life;
mod output;
mod peers;
mod private;
mod process;
mod proxy;
mod remapped;
mod remote;
mod restart;
mod rootless;
mod session;
mod shell;
mod test_network;
mod warm;

use fixture::Peer;
use hermes_types::BackendName;
use peers::{BASH, BUSYBOX};
use session::TestEnv;

/// Each behavior, by the file it is in. The attribute is for all tests of the row.
macro_rules! behaviors {
    ($mark:tt $test_env:expr) => {
        behaviors! { $mark $test_env =>
            shell::exit_codes_are_those_of_a_shell
            shell::stdout_and_stderr_keep_their_order
            shell::directory_and_exports_persist
            shell::directory_exports_functions_and_aliases_persist
            shell::state_survives_exit_errexit_and_exec
            shell::any_value_is_restored_unchanged
            shell::parallel_calls_never_mix_their_states
            shell::a_directory_or_variable_for_one_call_does_not_persist
            shell::a_missing_directory_is_126_and_nothing_runs
            shell::a_session_that_moved_after_the_verdict_runs_nothing
            shell::long_commands_and_long_inputs_arrive_whole
            shell::a_session_gets_only_its_own_environment
            shell::a_secret_is_visible_only_to_its_command
            shell::a_session_may_have_any_key_and_is_isolated
            process::a_deadline_is_124_and_keeps_the_output
            process::an_interrupt_is_130_and_keeps_the_output
            process::a_deadline_kills_the_whole_process_tree
            process::a_leftover_process_does_not_delay_the_command
            process::a_kill_returns_when_the_whole_tree_is_gone
            process::a_reused_pid_is_not_killed
            process::background_output_is_available_immediately
            process::notices_report_matches_and_every_end
            process::input_needs_its_own_permit
            process::a_permit_for_anything_else_runs_nothing
            process::a_terminal_has_a_size_and_can_be_resized
            process::dropping_a_command_kills_only_that_command
            output::two_hundred_megabytes_cost_no_memory
            output::long_output_returns_head_and_tail_and_spools_all
            output::long_lines_and_binary_output_arrive_unchanged
            output::the_output_of_a_process_can_be_paged_whole
            life::concurrent_callers_get_the_same_place
            life::a_hundred_handles_share_a_place
            life::killing_hermes_ends_foreground_commands_only
            life::processes_started_by_several_clients_are_in_one_list
            life::kept_files_outlive_the_place_and_other_files_stay_untouched
            life::each_command_runs_at_most_once_when_hermes_is_killed
            life::a_client_killed_while_opening_blocks_nothing
            life::a_vanished_place_is_recreated_and_reported_once
            life::a_running_command_keeps_its_place_alive_and_a_polling_client_does_not
            life::a_place_removes_itself_after_its_lifetime
            life::a_changed_setting_keeps_the_files_and_waits_for_running_processes
            life::places_are_listed_found_by_name_or_session_and_ended
            life::a_place_over_the_limit_waits_for_an_idle_one
            life::a_person_over_their_limit_is_refused_and_others_are_not
            life::a_place_that_no_hermes_uses_ends_whatever_runs_there
            life::a_place_over_its_age_ends_whatever_runs_there
            life::what_grows_is_not_in_the_run_directory
            life::a_place_that_was_removed_leaves_nothing
            life::remains_of_an_ended_place_are_removed
            life::a_failed_creation_is_an_error_with_the_reason
            hostile::an_unreachable_guest_is_replaced
            hostile::a_hanging_guest_is_listed_and_can_be_ended
            hostile::a_guest_that_breaks_the_protocol_is_replaced
            hostile::a_guest_killed_during_a_command_is_an_error_and_nothing_runs_twice
            hostile::a_run_directory_that_others_can_change_is_not_trusted
            files::a_hundred_megabytes_round_trip_in_little_memory
            files::writing_through_a_symlink_keeps_the_symlink
            files::a_symlink_changed_after_the_verdict_leaks_and_changes_nothing
            files::a_write_keeps_mode_and_owner_and_a_new_file_gets_defaults
            files::every_byte_is_preserved
            files::concurrent_writers_never_mix_their_content
            files::an_incomplete_write_leaves_the_file_unchanged
            files::a_search_counts_all_matches_and_parses_no_pattern_as_an_option
            files::a_patch_makes_all_edits_or_none
            files::a_file_name_is_never_interpreted
            files::a_name_that_is_not_utf8_is_listed_but_has_no_verdict
            files::a_path_is_relative_to_the_directory_of_the_session
            files::special_and_endless_files_neither_block_nor_use_memory
            files::a_file_permit_is_valid_only_for_its_use_place_and_session
        }
    };
    ($mark:tt $test_env:expr => $($file:ident::$behavior:ident)*) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            #$mark
            async fn $behavior() {
                let test_env = $test_env;
                crate::$file::$behavior(&test_env).await;
                test_env.remove_all().await;
            }
        )*
    };
}

/// Behavior of every place that confines commands.
macro_rules! behaviors_of_confined_places {
    ($mark:tt $test_env:expr) => {
        behaviors! { $mark $test_env =>
            jail::a_place_cannot_forge_its_record
            jail::a_place_cannot_redirect_hermes_to_another_guest
            jail::a_place_cannot_prevent_the_creation_of_others
            jail::a_place_that_hides_its_socket_is_listed_and_removed
            jail::a_deep_or_unreadable_tree_of_a_place_is_removed
            jail::a_place_cannot_redirect_its_proxy_to_another_guest
            jail::a_place_of_another_run_directory_is_not_taken_over
            jail::a_place_cannot_fill_the_disk_of_the_place_directories
        }
    };
}

/// Behavior of containers only.
macro_rules! behaviors_of_containers {
    ($mark:tt $test_env:expr) => {
        behaviors! { $mark $test_env =>
            container::a_removed_stopped_killed_or_paused_container_is_recreated_and_reported_once
            container::opening_a_paused_container_replaces_it
            container::a_foreign_container_with_the_same_name_is_left_alone
            container::a_failed_creation_leaves_nothing_and_gives_the_reason
            container::the_guest_starts_with_any_entry_point_and_user_of_the_image
            container::every_user_can_write_to_home_and_workspace
            container::the_first_process_reaps_orphans
            container::a_process_over_the_memory_limit_is_killed_and_the_place_survives
            container::a_container_killed_for_its_memory_is_recreated_and_reported_once
            container::a_client_killed_during_creation_leaves_no_container
            remote::a_remote_engine_behaves_like_a_local_one
            remote::every_user_has_a_guest_on_a_remote_engine
            remote::host_mounts_on_a_remote_engine_are_refused
            warm::a_new_session_gets_an_unused_warm_container
            warm::a_warm_container_with_other_settings_or_prior_use_is_not_handed_over
            warm::only_orphaned_containers_are_removed
            escape::commands_have_only_the_granted_capabilities
            escape::nothing_of_the_host_is_visible
            escape::devices_and_the_kernel_are_not_accessible
            escape::cgroups_and_mounts_cannot_be_changed
            escape::a_setuid_program_gives_no_privileges
            escape::the_guest_of_another_place_is_not_reachable
            escape::the_first_process_reveals_only_the_environment_of_the_session
            escape::a_fork_bomb_stays_below_its_limit
            escape::a_place_without_network_has_only_loopback
        }
    };
}

/// Behavior of an image without bash.
macro_rules! behaviors_of_sh {
    ($mark:tt $test_env:expr) => {
        behaviors! { $mark $test_env =>
            shell::exit_codes_are_those_of_a_shell
            shell::stdout_and_stderr_keep_their_order
            shell::directory_and_exports_persist
            shell::a_directory_or_variable_for_one_call_does_not_persist
            shell::a_missing_directory_is_126_and_nothing_runs
            shell::long_commands_and_long_inputs_arrive_whole
            process::a_deadline_is_124_and_keeps_the_output
            process::an_interrupt_is_130_and_keeps_the_output
            process::background_output_is_available_immediately
            process::notices_report_matches_and_every_end
            process::dropping_a_command_kills_only_that_command
            output::long_output_returns_head_and_tail_and_spools_all
            output::the_output_of_a_process_can_be_paged_whole
            life::a_vanished_place_is_recreated_and_reported_once
            files::concurrent_writers_never_mix_their_content
            files::every_byte_is_preserved
            files::a_patch_makes_all_edits_or_none
        }
    };
}

/// Behavior of a container with a read-only layer.
macro_rules! behaviors_of_read_only {
    ($mark:tt $test_env:expr) => {
        behaviors_of_sh!($mark $test_env);
        behaviors! { $mark $test_env =>
            container::only_the_read_only_layer_is_not_writable
            remote::a_remote_engine_behaves_like_a_local_one
            life::kept_files_outlive_the_place_and_other_files_stay_untouched
            life::a_place_that_was_removed_leaves_nothing
        }
    };
}

mod local {
    behaviors!([cfg(test)] crate::TestEnv::new(crate::BackendName::Local));
}

mod sandbox {
    behaviors!([cfg(test)] crate::TestEnv::new(crate::BackendName::Sandbox));
    behaviors_of_confined_places!([cfg(test)] crate::TestEnv::new(crate::BackendName::Sandbox));
}

mod docker {
    behaviors!([cfg(test)] crate::TestEnv::of(crate::Peer::named("docker", crate::BASH)));
    behaviors_of_containers!([cfg(test)] crate::TestEnv::of(crate::Peer::named("docker", crate::BASH)));
    behaviors_of_confined_places!([cfg(test)] crate::TestEnv::of(crate::Peer::named("docker", crate::BASH)));
}

mod docker_busybox {
    behaviors_of_sh!([cfg(test)] crate::TestEnv::of(crate::Peer::named("docker", crate::BUSYBOX)));
}

mod docker_read_only {
    behaviors_of_read_only!([cfg(test)] crate::TestEnv::of(crate::Peer::read_only("docker", crate::BASH)));
}

mod docker_read_only_busybox {
    behaviors_of_read_only!([cfg(test)] crate::TestEnv::of(crate::Peer::read_only("docker", crate::BUSYBOX)));
}

mod podman {
    behaviors!([cfg(test)] crate::TestEnv::of(crate::Peer::named("podman", crate::BASH)));
    behaviors_of_containers!([cfg(test)] crate::TestEnv::of(crate::Peer::named("podman", crate::BASH)));
    behaviors_of_confined_places!([cfg(test)] crate::TestEnv::of(crate::Peer::named("podman", crate::BASH)));
}

mod podman_busybox {
    behaviors_of_sh!([cfg(test)] crate::TestEnv::of(crate::Peer::named("podman", crate::BUSYBOX)));
}

mod podman_read_only {
    behaviors_of_read_only!([cfg(test)] crate::TestEnv::of(crate::Peer::read_only("podman", crate::BASH)));
}

mod podman_read_only_busybox {
    behaviors_of_read_only!([cfg(test)] crate::TestEnv::of(crate::Peer::read_only("podman", crate::BUSYBOX)));
}

mod podman_rootless {
    behaviors!(
        [ignore = "run by rootless::the_rootless_podman_rows_pass_as_an_unprivileged_user"]
        crate::TestEnv::of(crate::Peer::named("podman-rootless", crate::BASH))
    );
    behaviors_of_containers!(
        [ignore = "run by rootless::the_rootless_podman_rows_pass_as_an_unprivileged_user"]
        crate::TestEnv::of(crate::Peer::named("podman-rootless", crate::BASH))
    );
    behaviors_of_confined_places!(
        [ignore = "run by rootless::the_rootless_podman_rows_pass_as_an_unprivileged_user"]
        crate::TestEnv::of(crate::Peer::named("podman-rootless", crate::BASH))
    );
}

mod podman_rootless_busybox {
    behaviors_of_sh!(
        [ignore = "run by rootless::the_rootless_podman_rows_pass_as_an_unprivileged_user"]
        crate::TestEnv::of(crate::Peer::named("podman-rootless", crate::BUSYBOX))
    );
}

mod podman_rootless_users {
    behaviors! {
        [ignore = "run by rootless::the_rootless_podman_rows_pass_as_an_unprivileged_user"]
        crate::TestEnv::of(crate::Peer::named("podman-rootless", crate::BASH)) =>
            container::commands_can_write_with_every_podman_user_mapping
    }
}

mod podman_rootless_read_only {
    behaviors_of_read_only!(
        [ignore = "run by rootless::the_rootless_podman_rows_pass_as_an_unprivileged_user"]
        crate::TestEnv::of(crate::Peer::read_only("podman-rootless", crate::BASH))
    );
}
