# Connects this network to that of process $1. $2 contains resolv.conf and nsswitch.conf.
ip link set lo up
ip link add out0 type veth peer name net0
ip link set net0 netns "$1"
ip addr add 9.9.9.1/24 dev out0
ip addr add 2606:4700:9::1/64 dev out0 nodad
ip link set out0 up
nsenter --target "$1" --net -- sh -ec '
    ip link set lo up
    for address in 1.1.1.1/32 8.8.4.4/32 10.66.0.1/32 169.254.169.254/32 2606:4700::1111/128; do
        ip addr add "$address" dev lo
    done
    ip addr add 9.9.9.2/24 dev net0
    ip addr add 2606:4700:9::2/64 dev net0 nodad
    ip link set net0 up
'
ip route add default via 9.9.9.2
ip -6 route add default via 2606:4700:9::2
mount --bind "$2/resolv.conf" /etc/resolv.conf
mount --bind "$2/nsswitch.conf" /etc/nsswitch.conf
