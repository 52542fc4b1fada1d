# Arguments: the root, the user's home to mount, where to mount it, the shared directory, the images, the cgroup.
cd "$1"
mount --bind . .
# Entering the mount that now covers the directory.
cd "$1"
open_devices
cp /etc/hosts /etc/resolv.conf etc/
for tree in proc dev sys; do
    mount --rbind "/$tree" "$tree"
done
mount --bind /tmp tmp
mkdir -p ".$3"
mount --bind "$2" ".$3"
for path in "$4" "$5"; do
    mkdir -p ".$path"
    mount --bind "$path" ".$path"
done
# The state directory may be below here.
chmod 755 root
# A version 2 hierarchy can be mounted whatever else the machine uses cgroups for.
mkdir -p run/cgroup
mount -t cgroup2 cgroup2 run/cgroup
mkdir -p "run/cgroup/$6/build"
pivot_root . mnt
exec chroot . sh -euc 'umount -l /mnt; exec sleep infinity'
