//! The probe says what the other tests show.

use crate::bed::everybody;

#[test]
fn everything_but_resources_is_held_by_every_jail() {
    for bed in everybody() {
        let ended = bed.free(&[bed.text("testbed"), "probe".to_owned()]);
        let held = "Probe { files: Held, network: Held, processes: Held, syscalls: Held, resources: ";
        assert!(ended.out.starts_with(held), "uid {}: {ended:?}", bed.uid);
    }
}
