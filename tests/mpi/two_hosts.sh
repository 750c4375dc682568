#!/bin/sh
# two_hosts.sh RATE RANKS COMMAND...: the command under mpiexec on two hosts with RANKS ranks each, which a link of RATE
# (as tc says it: 1gbit) joins. The hosts are network namespaces with names of their own, so this needs root, ip and tc;
# exit 77 where they cannot be made.
rate=$1 ranks=$2
shift 2
[ "$(id -u)" = 0 ] && command -v ip >/dev/null && command -v tc >/dev/null || exit 77
a=pt-a-$$ b=pt-b-$$
launch=$(mktemp "${TMPDIR:-/tmp}/two-hosts.XXXXXX") || exit 99
end() {
    ip netns del "$a" 2>/dev/null
    ip netns del "$b" 2>/dev/null
    rm -f "$launch"
}
trap end EXIT
trap 'exit 99' HUP INT TERM
ip netns add "$a" 2>/dev/null && ip netns add "$b" 2>/dev/null || exit 77
ip -n "$a" link add eth0 type veth peer name eth0 netns "$b" 2>/dev/null || exit 77
n=1
for host in "$a" "$b"; do
    ip -n "$host" addr add 10.111.0.$n/24 dev eth0
    ip -n "$host" link set lo up
    ip -n "$host" link set eth0 up
    # The kernel hands over 64 KiB of data at once, which with a header for every segment must be within the burst: otherwise
    # tbf cuts it into segments itself, work of the computing cores that a network card does. 20 ms of queue lose nothing that
    # TCP does not expect.
    ip netns exec "$host" tc qdisc add dev eth0 root tbf rate "$rate" burst 128kb latency 20ms || exit 77
    n=$((n + 1))
done
# The kernel says so within about a second; until then UCX does not see the device.
for host in "$a" "$b"; do
    i=0
    while [ $i -lt 50 ] && ! ip -n "$host" -br link show eth0 | grep -q ' UP '; do
        sleep 0.1
        i=$((i + 1))
    done
done
# Hydra calls it as ssh: [-x] HOST COMMAND...
cat >"$launch" <<END
#!/bin/sh
while [ "\${1#-}" != "\$1" ]; do shift; done
case \$1 in 10.111.0.1) ns=$a name=host-a ;; *) ns=$b name=host-b ;; esac
shift
exec ip netns exec "\$ns" unshare -u sh -c "hostname \$name; exec \$*"
END
chmod +x "$launch"
UCX_TLS=tcp,self UCX_NET_DEVICES=eth0 ip netns exec "$a" unshare -u sh -c 'hostname host-a; exec "$@"' sh \
    mpiexec -launcher ssh -launcher-exec "$launch" -iface eth0 -hosts "10.111.0.1:$ranks,10.111.0.2:$ranks" -n $((2 * ranks)) "$@"
