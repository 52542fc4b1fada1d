# Creates a throw-away machine in namespaces of its own and becomes the given program in it.
# usage: enter.sh DIRECTORY PROGRAM [ARGUMENT...]
#
# The root is an overlay over the real one, in memory: nothing that happens inside reaches a disk.
set -eu
dir=$1
shift
mount -t tmpfs -o mode=0755 tmpfs "$dir"
mkdir "$dir/upper" "$dir/work" "$dir/root"
mount -t overlay -o "lowerdir=/,upperdir=$dir/upper,workdir=$dir/work" overlay "$dir/root"
root=$dir/root
for place in home root tmp run var/tmp; do
    mkdir -p "$root/$place"
    mount -t tmpfs -o mode=0755 tmpfs "$root/$place"
done
chmod 1777 "$root/tmp" "$root/var/tmp"
chmod 0700 "$root/root"
mount -t proc -o nosuid,nodev,noexec proc "$root/proc"
if [ -e "$root/proc/sysrq-trigger" ]; then
    mount --bind /dev/null "$root/proc/sysrq-trigger"
fi
mount -t sysfs -o ro,nosuid,nodev,noexec sysfs "$root/sys"
mount -t tmpfs -o mode=0755 tmpfs "$root/dev"
for device in null zero full random urandom tty; do
    touch "$root/dev/$device"
    mount --bind "/dev/$device" "$root/dev/$device"
done
mkdir "$root/dev/pts" "$root/dev/shm"
mount -t devpts -o newinstance,ptmxmode=0666,mode=0620 devpts "$root/dev/pts"
mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
ln -s pts/ptmx "$root/dev/ptmx"
ln -s /proc/self/fd "$root/dev/fd"
ln -s /proc/self/fd/0 "$root/dev/stdin"
ln -s /proc/self/fd/1 "$root/dev/stdout"
ln -s /proc/self/fd/2 "$root/dev/stderr"
ip link set lo up
# Every address is this machine, so that data that is sent anywhere arrives at the catcher.
ip route add local default dev lo
cd "$root"
mkdir -p .old
pivot_root . .old
cd /
umount -l /.old
exec "$@"
