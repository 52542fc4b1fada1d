# Arguments: the runtime directory, data, exec root, socket, parent cgroup.
private_run "$1"
cgroups
ip link set lo up
# Pids restart in each cell, so a pid file of an earlier cell could name an unrelated process.
find "$3" -mindepth 1 -delete
# dockerd keeps a key here that has no option.
mkdir -p /etc/docker
mount -t tmpfs tmpfs /etc/docker
echo '{}' > /etc/docker/daemon.json
exec tini -- dockerd \
    --config-file /etc/docker/daemon.json \
    --data-root "$2" --exec-root "$3" --pidfile "$3/docker.pid" \
    --host "unix://$4" --group root \
    --cgroup-parent "/$5" --exec-opt native.cgroupdriver=cgroupfs \
    --shutdown-timeout 3
