# Sets up the namespaces of the engines of one test; they outlive an engine. Runs after the functions in prelude.sh.
# Arguments: the runtime directory, and optionally a disk image and its mount point.
private_run "$1"
cgroups
mount --make-rshared /
ip link set lo up
# dockerd stores a key here, which no option moves, and the bridge plugin of Podman stores its leases.
for path in /etc/docker /var/lib/cni; do
    mkdir -p "$path"
    mount -t tmpfs tmpfs "$path"
done
if [ $# = 3 ]; then
    mount -o loop "$2" "$3"
fi
exec tini -- sleep infinity
