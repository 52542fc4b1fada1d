//! Disks, partitions, volumes and mounts.

use super::*;

pub(super) const PROGRAMS: &[ProgramSpec] = &[
    program(&[
        "mkfs", "mkfs.*", "mke2fs*", "newfs*", "blkdiscard", "mkswap", "mkdosfs", "mkntfs", "mkexfatfs",
        "mkreiserfs", "scrub", "nwipe", "mkudffs", "mkfatfs",
    ])
    .files(&[writes(Operands).when(Not(&Help))])
    .asks(&[FORMATS]),
    program(&["wipefs"])
        .asks(&[All(&[Flag(&["-a", "--all", "-o", "--offset"]), Test(names_device)]).triggers("format")]),
    program(&["badblocks"])
        .asks(&[All(&[Flag(&["-w", "-n"]), Test(names_device)]).triggers("format"), CHANGES]),
    program(&["sg_format"]).asks(&[FORMATS, CHANGES]),
    non_reader(&["mount"]).asks(&[CHANGES.unless(Any(&[NoArguments, Flag(&["-l", "--show-labels"])]))]),
    non_reader(&["umount"]).asks(&[CHANGES]),
    program(&["fdisk", "sfdisk", "parted", "gdisk", "sgdisk"]).asks(&[CHANGES
        .unless(Any(&[Flag(&["-l", "--list", "-d", "-p", "--print", "-J"]), LastOperandIs(&["print"])]))]),
    program(&["zfs", "zpool"])
        .asks(&[CHANGES.unless(Any(&[NoOperands, Verb(&["list", "get", "status", "history", "iostat"])]))]),
    program(&["btrfs"]).asks(&[CHANGES.unless(Operand(&["list", "show", "df", "usage"]))]),
    program(&["cryptsetup"]).asks(&[CHANGES.unless(Verb(&["status", "luksDump", "isLuks"]))]),
    program(&["mdadm"])
        .asks(&[CHANGES.unless(Flag(&["--detail", "-D", "--examine", "-E", "--query", "-Q"]))]),
    program(&["hdparm"])
        .asks(&[CHANGES.unless(All(&[Flag(&["-I", "-i", "-t", "-T"]), Not(&Arg(&["--security*"]))]))]),
    program(&["nvme"]).asks(&[CHANGES.unless(Verb(&["list", "smart-log", "id-ctrl", "list-subsys"]))]),
    program(&["losetup"]).asks(&[CHANGES.unless(Any(&[
        NoArguments,
        All(&[Flag(&["-a", "-l", "--list", "--all"]), Not(&Flag(&["-D", "-d"]))]),
    ]))]),
    program(&["dmsetup"]).asks(&[CHANGES.unless(Verb(&["ls", "info", "status", "table"]))]),
    program(&["diskutil"]).asks(&[CHANGES.unless(Verb(&["list", "info"]))]),
    program(&["swapon"]).asks(&[CHANGES.unless(Any(&[NoArguments, Flag(&["-s", "--show", "--summary"])]))]),
    program(&["efibootmgr", "fwupdmgr"]).asks(&[CHANGES.unless(Any(&[NoArguments, Verb(&["get*"])]))]),
    program(&["tune2fs"]).asks(&[CHANGES.unless(Flag(&["-l"]))]),
    program(&["fsck", "e2fsck"]).asks(&[CHANGES.unless(Flag(&["-n", "-N"]))]),
    program(&["flashrom"]).asks(&[CHANGES, always("devices")]),
    program(&[
        "cfdisk", "lvremove", "vgremove", "pvremove", "lvreduce", "lvresize", "pvcreate", "vgcreate",
        "lvcreate", "swapoff", "resize2fs", "xfs_repair", "debugfs", "partprobe", "kpartx", "growpart",
        "sdparm", "fstrim", "udisksctl", "grub-install", "update-grub",
    ])
    .asks(&[CHANGES]),
    program(&["pivot_root", "bwrap", "fusermount", "sshfs", "overlayfs"]).asks(&[always("mount")]),
];

const FORMATS: Ask = Test(names_device).triggers("format").unless(Help);

const CHANGES: Ask = always("disk-tools");

/// Whether a word may be a device. Formatting an image file is ordinary.
fn names_device(call: &Invocation<'_>) -> bool {
    call.args.iter().any(|word| {
        let path = call.segment.path(word);
        path.starts_with("/dev/") || path.contains(UNKNOWN_CHAR)
    })
}
