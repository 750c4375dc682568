# Sourced by tests that need a Debian without anything: a root file system, and commands in it. Its user sets
#
#   work       a folder that the test removes
#   root_home  the home of root in commands
#   suite      the release, if not this one
suite=bookworm

# The address of an archive that this machine's sources have for a suite; nothing where they have none.
source_of() { # suite
    cat /etc/apt/sources.list /etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/*.sources 2>/dev/null | awk -v suite="$1" '
        /^ *#/ { next }
        /^URIs:/ { uri = $2 }
        /^Suites:/ { for (i = 2; i <= NF; i++) if ($i == suite && uri && !found) found = uri }
        /^deb / { for (i = 2; i < NF; i++) if ($i ~ /:\/\// && $(i + 1) == suite && !found) found = $i }
        END { print found }'
}

# Where this machine gets the suite from: from a source of it, else from the archive of the Debian that it runs, which has all
# suites; nothing where it runs something else.
mirror() {
    for known in "$suite" $(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release) stable testing unstable sid; do
        uri=$(source_of "$known")
        if [ -n "$uri" ]; then
            echo "$uri"
            return
        fi
        grep -qx 'ID=debian' /etc/os-release || return 0
    done
}

# This machine's names, certificates and settings of apt, as far as no package brings them, as a tree to lay over a root.
settings() { # folder
    mkdir -p "$1/etc/apt" "$1/usr/local/share" "$1/usr/share/keyrings"
    cp -L /etc/resolv.conf /etc/hosts "$1/etc/"
    cp -RL /usr/local/share/ca-certificates "$1/usr/local/share/" 2>/dev/null
    find /etc/apt/apt.conf /etc/apt/apt.conf.d /etc/apt/auth.conf /etc/apt/auth.conf.d /etc/apt/keyrings /etc/apt/trusted.gpg \
        /etc/apt/trusted.gpg.d /usr/share/keyrings -type f 2>/dev/null | while read -r file; do
        dpkg -S "$file" >/dev/null 2>&1 && continue
        mkdir -p "$1$(dirname "$file")" && cp "$file" "$1$file"
    done
    for file in "${NODE_EXTRA_CA_CERTS:-}" "${SSL_CERT_FILE:-}"; do
        case $file in
        '' | /etc/ssl/certs/ca-certificates.crt) ;;
        *) mkdir -p "$1$(dirname "$file")" && cp -L "$file" "$1$file" ;;
        esac
    done
    return 0
}

# Sources of the same release; others that this machine has are no part of a bare Debian.
sources() { # root
    grep -qs "^VERSION_CODENAME=$suite" /etc/os-release || return 0
    for list in /etc/apt/sources.list /etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/*.sources; do
        if grep -qs "$suite" "$list"; then
            rm -f "$1/etc/apt/sources.list" "$1/etc/apt/sources.list.d/0000"*
            break
        fi
    done
    for list in /etc/apt/sources.list /etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/*.sources; do
        if grep -qs "$suite" "$list"; then cp "$list" "$1$list"; fi
    done
}

bare() { # root
    [ -n "$(mirror)" ] || {
        echo "apt of this machine has no source of $suite, or of another suite of Debian"
        return 1
    }
    settings "$work/settings"
    if command -v mmdebstrap >/dev/null 2>&1; then
        mmdebstrap --mode=root --variant=minbase --include=ca-certificates,sudo \
            --setup-hook="cp -R '$work/settings/.' \"\$1/\"" "$suite" "$1" "deb $(mirror) $suite main" || return 1
    else
        eval "$(apt-config shell http_proxy Acquire::http::Proxy https_proxy Acquire::https::Proxy)"
        [ -z "${http_proxy:-}" ] || export http_proxy
        [ -z "${https_proxy:-}" ] || export https_proxy
        debootstrap --variant=minbase --include=ca-certificates,sudo "$suite" "$1" "$(mirror)" || return 1
    fi
    cp -R "$work/settings/." "$1/" && sources "$1" && env -u TMPDIR chroot "$1" update-ca-certificates
}

# What of this machine's environment says how to reach the network, for env.
reach() {
    env | grep -E '^(https?_proxy|no_proxy|HTTPS?_PROXY|NO_PROXY|npm_config_[a-z_]+|NODE_EXTRA_CA_CERTS|SSL_CERT_FILE)=' | grep -v '^npm_config_\(cache\|userconfig\|prefix\)'
}

# Run a command in the root file system as USER. Processes and mounts of it end with it.
inside() { # root user command...
    root=$1 user=$2
    shift 2
    if [ "$user" = root ]; then home=$root_home; else home=/home/$user; fi
    reach >"$work/reach"
    while read -r pair; do set -- "$pair" "$@"; done <"$work/reach"
    # shellcheck disable=SC2016
    unshare --mount --pid --ipc --fork --kill-child sh -c '
        root=$1 user=$2 archives=$3
        shift 3
        mount --make-rprivate / && mount --bind "$root" "$root" && mount -t proc proc "$root/proc" && mount --rbind /sys "$root/sys" &&
            mount --rbind /dev "$root/dev" && mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm" &&
            mount --bind "$archives" "$root/var/cache/apt/archives" || exit 99
        ids=$(chroot "$root" id -u "$user"):$(chroot "$root" id -g "$user")
        exec chroot --userspec="$ids" "$root" env -i "$@"
    ' sh "$root" "$user" "$work/archives" HOME="$home" USER="$user" LOGNAME="$user" LANG=C.UTF-8 \
        PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "$@" </dev/null
}
