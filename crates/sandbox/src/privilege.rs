//! Drops privileges of the jail's process: capabilities, inherited descriptors, unlimited
//! resources.

use std::io;
use std::os::fd::{AsFd, OwnedFd, RawFd};

use rustix::process::{Resource, Rlimit, setrlimit};
use rustix::thread::{CapabilitiesSecureBits, CapabilitySet, CapabilitySets};

use crate::init::JailIds;
use crate::jail::JailLimits;
use crate::limit_report::{LimitReport, LimitStatus};
use crate::sys;

/// The first descriptor that is not a standard stream.
const FIRST_OTHER_FD: RawFd = 3;

/// Capability sets have 64 bits.
const CAPABILITY_BITS: u32 = 64;

/// The rlimits of each process, and the limits enforced together with the cgroups.
pub(crate) struct Rlimits {
    values: Vec<(Resource, u64)>,
    pub(crate) limits: LimitReport,
}

impl Rlimits {
    /// `report` contains the limits enforced by cgroups.
    pub(crate) fn new(limits: &JailLimits, mut report: LimitReport, ids: JailIds) -> Self {
        // With zero the kernel would still start a core handler, outside and as root.
        let mut values = vec![(Resource::Core, 1)];
        if let (Some(bytes), LimitStatus::NotEnforced { reason }) = (limits.memory, report.memory.clone()) {
            values.push((Resource::Data, bytes));
            report.memory = LimitStatus::PerProcess { reason };
        }
        // `RLIMIT_NPROC` counts per user and user namespace, but never restricts the host's root.
        let is_root = matches!(ids, JailIds::Same { uid: 0, .. });
        if let (Some(count), LimitStatus::NotEnforced { .. }, false) =
            (limits.processes, &report.processes, is_root)
        {
            values.push((Resource::Nproc, u64::from(count)));
            report.processes = LimitStatus::Enforced;
        }
        Self { values, limits: report }
    }

    /// Sets the limits of this process and its descendants. They cannot be raised again.
    pub(crate) fn set(&self) -> io::Result<()> {
        for (resource, value) in &self.values {
            let hard = rustix::process::getrlimit(*resource).maximum.unwrap_or(u64::MAX);
            let value = Some((*value).min(hard));
            setrlimit(*resource, Rlimit { current: value, maximum: value })?;
        }
        Ok(())
    }
}

/// Drops all capabilities from all sets, permanently.
pub(crate) fn drop_capabilities() -> io::Result<()> {
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
            // The first capability that the kernel does not know.
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

/// Installs the standard streams and marks all other descriptors close-on-exec.
pub(crate) fn install_descriptors(streams: Vec<OwnedFd>) -> io::Result<()> {
    // First above all final numbers, so that no move overwrites a descriptor that is still needed.
    let moved = streams
        .iter()
        .map(|fd| rustix::io::fcntl_dupfd_cloexec(fd, FIRST_OTHER_FD))
        .collect::<Result<Vec<_>, _>>()?;
    // From here on the lower numbers may be overwritten; the originals are closed by that or by
    // exec.
    std::mem::forget(streams);
    for (number, fd) in (0..).zip(&moved) {
        sys::duplicate_to(fd.as_fd(), number)?;
    }
    sys::close_on_exec(FIRST_OTHER_FD.unsigned_abs(), u32::MAX)
}
