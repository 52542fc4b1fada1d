//! Disks, partitions, volumes and mounts.

use super::*;

pub(super) const PROGRAMS: &[ProgramSpec] = &[
    program(&[
        "mkfs", "mkfs.*", "mke2fs*", "newfs*", "blkdiscard", "mkswap", "mkdosfs", "mkntfs", "mkexfatfs",
        "mkreiserfs", "scrub", "nwipe", "mkudffs", "mkfatfs",
    ])
    .asks(&[FORMATS]),
    program(&["wipefs"])
        .asks(&[ask("format", All(&[Flag(&["-a", "--all", "-o", "--offset"]), Test(names_device)]))]),
    program(&["badblocks"]).asks(&[ask("format", All(&[Flag(&["-w", "-n"]), Test(names_device)])), CHANGES]),
    program(&["sg_format"]).asks(&[FORMATS, CHANGES]),
    program(&["mount"])
        .names_files()
        .asks(&[changes_unless(&Any(&[NoArguments, Flag(&["-l", "--show-labels"])]))]),
    program(&["umount"]).names_files().asks(&[CHANGES]),
    program(&["fdisk", "sfdisk", "parted", "gdisk", "sgdisk"]).asks(&[changes_unless(&Any(&[
        Flag(&["-l", "--list", "-d", "-p", "--print", "-J"]),
        LastOperandIs(&["print"]),
    ]))]),
    program(&["zfs", "zpool"])
        .asks(&[changes_unless(&Any(&[NoOperands, Verb(&["list", "get", "status", "history", "iostat"])]))]),
    program(&["btrfs"]).asks(&[changes_unless(&Operand(&["list", "show", "df", "usage"]))]),
    program(&["cryptsetup"]).asks(&[changes_unless(&Verb(&["status", "luksDump", "isLuks"]))]),
    program(&["mdadm"])
        .asks(&[changes_unless(&Flag(&["--detail", "-D", "--examine", "-E", "--query", "-Q"]))]),
    program(&["hdparm"])
        .asks(&[changes_unless(&All(&[Flag(&["-I", "-i", "-t", "-T"]), Not(&Arg(&["--security*"]))]))]),
    program(&["nvme"]).asks(&[changes_unless(&Verb(&["list", "smart-log", "id-ctrl", "list-subsys"]))]),
    program(&["losetup"]).asks(&[changes_unless(&Any(&[
        NoArguments,
        All(&[Flag(&["-a", "-l", "--list", "--all"]), Not(&Flag(&["-D", "-d"]))]),
    ]))]),
    program(&["dmsetup"]).asks(&[changes_unless(&Verb(&["ls", "info", "status", "table"]))]),
    program(&["diskutil"]).asks(&[changes_unless(&Verb(&["list", "info"]))]),
    program(&["swapon"]).asks(&[changes_unless(&Any(&[NoArguments, Flag(&["-s", "--show", "--summary"])]))]),
    program(&["efibootmgr", "fwupdmgr"]).asks(&[changes_unless(&Any(&[NoArguments, Verb(&["get*"])]))]),
    program(&["tune2fs"]).asks(&[changes_unless(&Flag(&["-l"]))]),
    program(&["fsck", "e2fsck"]).asks(&[changes_unless(&Flag(&["-n", "-N"]))]),
    program(&["flashrom"]).asks(&[CHANGES, always("devices")]),
    program(&[
        "cfdisk", "lvremove", "vgremove", "pvremove", "lvreduce", "lvresize", "pvcreate", "vgcreate",
        "lvcreate", "swapoff", "resize2fs", "xfs_repair", "debugfs", "partprobe", "kpartx", "growpart",
        "sdparm", "fstrim", "udisksctl", "grub-install", "update-grub",
    ])
    .asks(&[CHANGES]),
    program(&["pivot_root", "bwrap", "fusermount", "sshfs", "overlayfs"]).asks(&[always("mount")]),
];

const FORMATS: Ask = ask("format", All(&[Test(names_device), Not(&Help)]));

const CHANGES: Ask = always("disk-tools");

/// The disk is changed, unless a condition says that it is only shown.
const fn changes_unless(shows: &'static super::When) -> Ask {
    ask("disk-tools", Not(shows))
}

/// Whether a word may be a device. Formatting an image file is ordinary.
fn names_device(call: &Invocation<'_>) -> bool {
    call.args.iter().any(|word| {
        let path = call.segment.path(word);
        path.starts_with("/dev/") || path.contains(UNKNOWN_CHAR)
    })
}
