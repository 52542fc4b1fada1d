//! What a process inside a jail may not have: capabilities, other people's descriptors, boundless resources.

use std::io;
use std::os::fd::{AsFd, OwnedFd, RawFd};

use rustix::process::{Resource, Rlimit, setrlimit};
use rustix::thread::{CapabilitiesSecureBits, CapabilitySet, CapabilitySets};

use crate::held::{Held, Hold};
use crate::jail::Limits;
use crate::sys;

/// Descriptors are moved above this number while they are put in order.
const ABOVE: RawFd = 512;

/// Capabilities have numbers below this in every kernel there will be: the sets have 64 bits.
const CAPABILITY_BITS: u32 = 64;

/// The limits each process has, and what holds together with the cgroups.
pub(crate) struct Rlimits {
    all: Vec<(Resource, u64)>,
    pub(crate) held: Held,
}

impl Rlimits {
    /// `held` is what the cgroups hold.
    pub(crate) fn new(limits: &Limits, mut held: Held) -> Self {
        let mut all = vec![(Resource::Core, 0)];
        all.extend(limits.open_files.map(|count| (Resource::Nofile, count)));
        if let (Some(bytes), Hold::NotHeld { reason }) = (limits.memory, held.memory.clone()) {
            all.push((Resource::Data, bytes));
            held.memory = Hold::EachProcess { reason };
        }
        // The kernel counts processes for each user in each user namespace, but never refuses one to the host's root.
        let is_root = rustix::process::getuid().is_root();
        if let (Some(count), Hold::NotHeld { .. }, false) = (limits.processes, &held.processes, is_root) {
            all.push((Resource::Nproc, u64::from(count)));
            held.processes = Hold::Held;
        }
        Self { all, held }
    }

    /// Sets the limits for this process and all it starts. They can never be raised again.
    pub(crate) fn set(&self) -> io::Result<()> {
        for (resource, value) in &self.all {
            let hard = rustix::process::getrlimit(*resource).maximum.unwrap_or(u64::MAX);
            let value = Some((*value).min(hard));
            setrlimit(*resource, Rlimit { current: value, maximum: value })?;
        }
        Ok(())
    }
}

/// Gives up every capability, in every set, for ever.
pub(crate) fn drop_all() -> io::Result<()> {
    let bits = CapabilitiesSecureBits::NO_ROOT
        | CapabilitiesSecureBits::NO_ROOT_LOCKED
        | CapabilitiesSecureBits::NO_SETUID_FIXUP
        | CapabilitiesSecureBits::NO_SETUID_FIXUP_LOCKED
        | CapabilitiesSecureBits::KEEP_CAPS_LOCKED
        | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE
        | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE_LOCKED;
    rustix::thread::set_capabilities_secure_bits(bits)?;
    for bit in 0..CAPABILITY_BITS {
        let capability = CapabilitySet::from_bits_retain(1 << bit);
        match rustix::thread::remove_capability_from_bounding_set(capability) {
            // The first number the kernel does not know.
            Err(rustix::io::Errno::INVAL) => break,
            other => other?,
        }
    }
    let none = CapabilitySet::empty();
    rustix::thread::set_capabilities(
        None,
        CapabilitySets { effective: none, permitted: none, inheritable: none },
    )?;
    rustix::thread::set_no_new_privs(true)?;
    Ok(())
}

/// Puts each descriptor at its number and has all others closed when the program starts.
pub(crate) fn place(descriptors: Vec<(OwnedFd, RawFd)>) -> io::Result<()> {
    let mut numbers: Vec<RawFd> = descriptors.iter().map(|(_, number)| *number).collect();
    let above = numbers.iter().copied().max().unwrap_or(0).max(ABOVE) + 1;
    // Out of the way first, so that no move lands on a descriptor that is still needed.
    let moved = descriptors
        .iter()
        .map(|(fd, number)| Ok((rustix::io::fcntl_dupfd_cloexec(fd, above)?, *number)))
        .collect::<io::Result<Vec<_>>>()?;
    // From here on, the numbers below are ours to overwrite; the originals are closed by the overwriting or on exec.
    for fd in descriptors {
        std::mem::forget(fd);
    }
    for (fd, number) in &moved {
        sys::place(fd.as_fd(), *number)?;
    }
    numbers.sort_unstable();
    let mut first = 0;
    for number in numbers.into_iter().filter_map(|number| u32::try_from(number).ok()) {
        if first < number {
            sys::close_on_exec(first, number - 1)?;
        }
        first = number + 1;
    }
    sys::close_on_exec(first, u32::MAX)
}
