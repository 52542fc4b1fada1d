# Arguments: the runtime directory, storage, XDG_RUNTIME_DIR, socket, user, home.
private_run "$1"
cgroups
open_devices
mount --make-rshared /
find "$3" -mindepth 1 -delete
# The user may not be allowed into the directories above the storage, but is into this one.
mkdir -p "$6/.local/share/containers"
chown -R --no-dereference "$5": "$6/.local"
mount --bind "$2" "$6/.local/share/containers"
cd "$6"
insecure_loopback "$3/registries.conf"
exec tini -- setpriv --reuid "$5" --regid "$5" --init-groups \
    env -i "PATH=$PATH" LANG=C.UTF-8 "HOME=$6" "USER=$5" "XDG_RUNTIME_DIR=$3" \
    "CONTAINERS_REGISTRIES_CONF=$CONTAINERS_REGISTRIES_CONF" \
    podman --storage-driver overlay --runtime runc --cgroup-manager cgroupfs \
    system service --time 0 "unix://$4"
