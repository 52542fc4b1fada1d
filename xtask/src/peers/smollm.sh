# Arguments: the runtime directory, Python, the server, its port.
private_run "$1"
exec tini -- "$2" "$3" "$4"
