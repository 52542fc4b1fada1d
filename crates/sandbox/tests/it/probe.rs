//! The result of the probe agrees with the other tests.

use crate::fixture::test_users;

#[test]
fn every_jail_enforces_everything_but_resources() {
    for user in test_users() {
        let output = user.run_unconfined(&[user.path_str("testbed"), "probe".to_owned()]);
        let expected = "ProbeReport { files: Enforced, network: Enforced, processes: Enforced, syscalls: Enforced, resources: ";
        assert!(output.stdout.starts_with(expected), "uid {}: {output:?}", user.uid);
    }
}
