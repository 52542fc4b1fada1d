# Removes the cgroups that containers left behind, in every hierarchy; one that is in use stays.
# Arguments: the names of parent cgroups.
cgroups
while read -r _ path kind _; do
    case $kind in
    cgroup | cgroup2)
        for parent; do
            if [ -d "$path/$parent" ]; then
                find "$path/$parent" -depth -type d -exec rmdir --ignore-fail-on-non-empty {} ';' || true
            fi
        done
        ;;
    esac
done < /proc/mounts
