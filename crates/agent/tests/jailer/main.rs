//! The program that makes the jails of tests, which the program that runs the tests cannot.

fn main() {
    hermes_exec::backend::sandbox::helper_main();
}
