# Arguments: the runtime directory, configuration.
private_run "$1"
# sshd separates privileges in this directory, and wants to be started by its full path.
mkdir -m 755 /run/sshd
exec tini -- "$(command -v sshd)" -D -e -f "$2"
