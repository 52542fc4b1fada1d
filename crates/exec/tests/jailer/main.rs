//! What tests of the sandbox backend start to make jails, since the program that runs the tests cannot.

fn main() {
    hermes_sandbox::helper_main();
}
