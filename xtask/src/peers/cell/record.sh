# Writes its pid and start time, then becomes the supervisor of the cell. Doing this from the inside leaves no moment in
# which a killed `up` could lose track of a daemon. The start time tells this process from a later one with the
# same number, and the boot id tells this boot from the next.
# Arguments: the record, the fingerprint of the cell, then the command to become.
record=$1
print=$2
shift 2
start=$(cut -d ' ' -f 22 /proc/$$/stat)
printf '%s %s %s %s\n' $$ "$start" "$(cat /proc/sys/kernel/random/boot_id)" "$print" > "$record.new"
mv "$record.new" "$record"
exec "$@"
