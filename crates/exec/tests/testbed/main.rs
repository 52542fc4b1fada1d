//! What makes jails for the tests, in the role that `hermes` itself has for people.

fn main() {
    hermes_sandbox::helper_main();
}
