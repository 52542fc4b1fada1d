//! Developer tasks, run as `cargo xtask TASK`.

fn main() {}
