# Arguments: the runtime directory, storage, run root, socket.
private_run "$1"
cgroups
mount --make-rshared /
ip link set lo up
find "$3" -mindepth 1 -delete
# The bridge plugin keeps its leases here, and the interfaces they are for end with the cell.
mkdir -p /var/lib/cni
mount -t tmpfs tmpfs /var/lib/cni
insecure_loopback "$3/registries.conf"
exec tini -- podman \
    --root "$2" --runroot "$3/run" --tmpdir "$3/tmp" \
    --runtime runc --cgroup-manager cgroupfs \
    system service --time 0 "unix://$4"
