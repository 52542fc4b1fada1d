//! What is behind the number of things that are followed is never free.

use crate::support::report;

#[test]
fn a_dangerous_command_behind_many_harmless_ones_asks() {
    let many = |item: &str, count: usize| item.repeat(count);
    for command in [
        format!(
            "python3 -c \"import os\n{}os.system('rm -rf ~/Documents')\"",
            many("os.system('true')\n", 200)
        ),
        format!("find {} ~/Documents -exec rm -rf {{}} +", many("a ", 10)),
        format!("find {} ~/Documents -exec rm -rf {{}} +", many("a ", 100)),
        format!("echo {} ~/Documents | xargs rm -rf", many("a ", 100)),
        format!("parallel rm -rf ::: {} ~/Documents", many("a ", 100)),
        format!("sometool {} 'rm -rf /home/ada/Documents'", many("'rm -rf build' ", 20)),
        format!("cat {}home/ada/.ssh/id_rsa", many("/", 600)),
    ] {
        assert_ne!(report(&command).verdict, "allow", "{command}");
    }
}

#[test]
fn the_floor_is_found_behind_more_matches_than_are_reported() {
    let files: String = (0..520).map(|number| format!("chmod 777 f{number};")).collect();
    let report = report(&format!("{files} rm -rf ~"));
    assert!(report.floor, "{:?}", report.verdict);
}
