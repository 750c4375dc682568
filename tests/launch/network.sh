# Sourced: two hosts on this machine, host-a (10.111.0.1) and host-b (10.111.0.2). They are network namespaces with names of
# their own, so that several pairs live side by side, joined by a link that is as slow as asked for. Needs root, ip and tc.
# A caller of hosts_make sets a trap that calls hosts_end.
hosts_tag=$$
host_a=pt-a-$hosts_tag host_b=pt-b-$hosts_tag

hosts_missing() { # prints why two hosts cannot be made here
    [ "$(id -u)" = 0 ] || { echo "this user may not make network namespaces"; return; }
    for p in ip tc unshare; do
        command -v "$p" >/dev/null || { echo "$p is missing (Debian: iproute2, util-linux)"; return; }
    done
    if ! ip netns add "$host_a" 2>/dev/null; then
        echo "the kernel allows no network namespaces"
    elif ! ip netns exec "$host_a" true 2>/dev/null; then
        echo "no process can enter a network namespace (in a chroot: its root must be a mount point)"
    fi
    ip netns del "$host_a" 2>/dev/null
}

hosts_make() { # RATE (as tc says it: 1gbit) FILE: the link, and in FILE what Hydra may call as ssh; fails where it cannot
    ip netns add "$host_a" 2>/dev/null && ip netns add "$host_b" 2>/dev/null || return 1
    ip -n "$host_a" link add eth0 type veth peer name eth0 netns "$host_b" 2>/dev/null || return 1
    hosts_n=1
    for host in "$host_a" "$host_b"; do
        ip -n "$host" addr add 10.111.0.$hosts_n/24 dev eth0
        ip -n "$host" link set lo up
        ip -n "$host" link set eth0 up
        # The kernel hands over 64 KiB of data at once, which with a header for every segment must be within the burst: otherwise
        # tbf cuts it into segments itself, work of the computing cores that a network card does. 20 ms of queue lose nothing
        # that TCP does not expect.
        ip netns exec "$host" tc qdisc add dev eth0 root tbf rate "$1" burst 128kb latency 20ms || return 1
        hosts_n=$((hosts_n + 1))
    done
    # The kernel says so within about a second; until then UCX does not see the device.
    for host in "$host_a" "$host_b"; do
        i=0
        while [ $i -lt 50 ] && ! ip -n "$host" -br link show eth0 | grep -q ' UP '; do
            sleep 0.1
            i=$((i + 1))
        done
    done
    # Hydra calls it as ssh: [-x] HOST COMMAND...
    cat >"$2" <<SCRIPT
#!/bin/sh
while [ "\${1#-}" != "\$1" ]; do shift; done
case \$1 in 10.111.0.1) ns=$host_a name=host-a ;; *) ns=$host_b name=host-b ;; esac
shift
exec ip netns exec "\$ns" unshare -u sh -c "hostname \$name; exec \$*"
SCRIPT
    chmod +x "$2"
}

hosts_exec() { # the command in place of this (sub)shell, on host-a; MPI uses the link
    export UCX_TLS=tcp,self UCX_NET_DEVICES=eth0
    exec ip netns exec "$host_a" unshare -u sh -c 'hostname host-a; exec "$@"' sh "$@"
}

hosts_end() {
    ip netns del "$host_a" 2>/dev/null
    ip netns del "$host_b" 2>/dev/null
    true
}
