#!/bin/sh
# Runs `apptainer` as @USER@ inside its private root. Written by `cargo xtask peers up`.
set -eu
group=/proc/@PID@/root/run/cgroup/@CGROUP@
if [ "$(cut -d ' ' -f 22 /proc/@PID@/stat 2>/dev/null)" != @START@ ] || ! [ -d "$group" ]; then
    echo 'apptainer: its private root is not up; run: cargo xtask peers up apptainer' >&2
    exit 125
fi
# Whatever this starts is found by its cgroup when the peers go down.
echo $$ > "$group/cgroup.procs"
exec nsenter --target @PID@ --mount --root --wd -- \
    /usr/bin/setpriv --reuid @USER@ --regid @USER@ --init-groups \
    /usr/bin/env --chdir='@HOME@' HOME='@HOME@' USER=@USER@ LOGNAME=@USER@ SHELL=/bin/bash \
    PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin \
    apptainer "$@"
