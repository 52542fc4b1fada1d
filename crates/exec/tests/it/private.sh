# What the engines of one test live in, after the functions of the cells of the peers. They come and go; this stays.
# Arguments: the runtime directory, and perhaps a disk and where it is mounted.
private_run "$1"
cgroups
mount --make-rshared /
ip link set lo up
# dockerd keeps a key here that has no option, and the bridge plugin of Podman its leases.
for path in /etc/docker /var/lib/cni; do
    mkdir -p "$path"
    mount -t tmpfs tmpfs "$path"
done
if [ $# = 3 ]; then
    mount -o loop "$2" "$3"
fi
exec tini -- sleep infinity
