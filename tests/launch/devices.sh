# Sourced after network.sh: devices that are a fifth of a core each, four a host, so that a rank computes as fast whether its
# trial has one or eight. A quota for the ranks of a host together: a rank that waits yields to its neighbors, as it could not
# if each had a quota of its own. The fifth that is left of a core sends and receives. Needs root and the cgroup controller cpu.
devices_group=pt-$$

devices_make() { # FOLDER: makes FOLDER/train, the trainer within its host's quota; fails where there are no quotas
    devices_at=$1/cgroup
    mkdir -p "$devices_at" || return 1
    # ip netns exec mounts another /sys, without cgroups: a place of our own stays.
    if [ -d /sys/fs/cgroup/cpu ]; then
        mount --bind /sys/fs/cgroup/cpu "$devices_at" 2>/dev/null || return 1
        quota='echo 50000 >"$group/cpu.cfs_period_us" && echo $((n * 10000)) >"$group/cpu.cfs_quota_us"'
    else
        mount --bind /sys/fs/cgroup "$devices_at" 2>/dev/null || return 1
        grep -qw cpu "$devices_at/cgroup.subtree_control" || return 1
        quota='echo "$((n * 10000)) 50000" >"$group/cpu.max"'
    fi
    devices_groups=$devices_at/$devices_group
    mkdir "$devices_groups" 2>/dev/null || return 1
    [ ! -e "$devices_groups/cgroup.subtree_control" ] || echo +cpu >"$devices_groups/cgroup.subtree_control" || return 1
    mkdir "$devices_groups/host-a" "$devices_groups/host-b" || return 1
    cat >"$1/train" <<SCRIPT
#!/bin/sh
group=$devices_groups/\$(hostname)
n=\${PMI_SIZE:-1}
case \$(hostname) in host-a) [ "\$n" -le 4 ] || n=4 ;; *) n=\$((n - 4)) ;; esac
$quota && echo \$\$ >"\$group/cgroup.procs" || exit 1
exec "$PT_BUILD/partune-train" "\$@"
SCRIPT
    chmod +x "$1/train"
}

devices_end() {
    [ -n "${devices_groups:-}" ] || return 0
    i=0 # the last ranks of a trial that was ended are about to
    until rmdir "$devices_groups"/*/ "$devices_groups" 2>/dev/null || [ $i -ge 50 ]; do
        sleep 0.1
        i=$((i + 1))
    done
    umount "$devices_at"
}
