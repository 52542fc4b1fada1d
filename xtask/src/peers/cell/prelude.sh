# What the cells share. All mounts below are seen by this cell alone and end with it.

# Gives the cell a /run and a /dev/shm of its own, with nothing of the machine's in it but our runtime
# directory: no system containerd to be found and used, no locks shared with a system Podman, nothing left over.
private_run() {
    mount --bind "$1" /mnt
    mount -t tmpfs -o mode=755 tmpfs /run
    mkdir -p "$1" /run/lock
    mount --move /mnt "$1"
    mount -t tmpfs -o mode=1777 tmpfs /dev/shm
}

# Mounts cgroups where the machine has none: version 2 if the memory controller can be had there, else one
# version 1 hierarchy for each controller.
cgroups() {
    if grep -q ' - cgroup2\? ' /proc/self/mountinfo; then
        return
    fi
    mount -t cgroup2 cgroup2 /sys/fs/cgroup
    if grep -qw memory /sys/fs/cgroup/cgroup.controllers; then
        return
    fi
    umount /sys/fs/cgroup
    mount -t tmpfs -o mode=755 tmpfs /sys/fs/cgroup
    while read -r controller _ _ enabled; do
        if [ "$enabled" = 1 ]; then
            mkdir "/sys/fs/cgroup/$controller"
            mount -t cgroup -o "$controller" cgroup "/sys/fs/cgroup/$controller"
        fi
    done < /proc/cgroups
}

# Lets an ordinary user open /dev/fuse and /dev/net/tun, as udev does on most machines. Nodes of our own are
# mounted over the machine's, whose modes stay as they are.
open_devices() {
    mount -t tmpfs tmpfs /mnt
    mknod -m 666 /mnt/fuse c 10 229
    mknod -m 666 /mnt/tun c 10 200
    if [ -e /dev/fuse ]; then
        mount --bind /mnt/fuse /dev/fuse
    fi
    if [ -e /dev/net/tun ]; then
        mount --bind /mnt/tun /dev/net/tun
    fi
    umount -l /mnt
}

# Lets Podman pull from a registry of a test on loopback without TLS, as Docker does by itself. Of the machine's own
# registries none is used.
insecure_loopback() {
    printf '[[registry]]\nlocation = "127.0.0.1"\ninsecure = true\n' > "$1"
    chmod 644 "$1"
    export CONTAINERS_REGISTRIES_CONF="$1"
}
