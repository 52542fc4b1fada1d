# Argument: the cgroup.
mount -t cgroup2 cgroup2 /mnt
if [ -d "/mnt/$1" ]; then
    echo 1 > "/mnt/$1/cgroup.kill"
    # The processes take a moment to end, and the group cannot go before them.
    while ! find "/mnt/$1" -depth -type d -exec rmdir {} + 2>/dev/null; do
        sleep 0.05
    done
fi
