# Sourced after tap.sh by tests in a folder of their own: a daemon, and questions to it. What differs is set before start.
partuned="$PT_BUILD/partuned" # the program, or another path to it
within=""                     # a command that runs it, in words
data=data                     # its folder
options=""                    # of every start, as a shell reads them: '--train "$run/train"'
pid=""

start() { # options of this start, which win: sets pid, url, A
    rm -f err # of the daemon before, which was ready, too
    eval "set -- $options \"\$@\""
    $within "$partuned" --data "$data" --listen 127.0.0.1:0 "$@" 2>err &
    pid=$!
    pids="$pids $pid"
    wait_for 60 grep -q 'ready at' err || { sed 's/^/# /' err; echo "Bail out! the daemon does not start"; exit 99; }
    url=$(sed -n 's/.*ready at \([^ ]*\).*/\1/p' err)
    A="Authorization: Bearer $(cat "$data/token")"
}
stop() { # signal: gives the daemon's status
    kill -"${1:-TERM}" "$pid" 2>/dev/null
    wait "$pid" 2>/dev/null
}
client() { # the client's environment; nothing of the user's
    export PARTUNE_SERVER="$url" PARTUNE_DATA="$run/$data" XDG_CONFIG_HOME="$run/none" NO_COLOR=1
}

call() { path=$1; shift; $C -H "$A" -H "$J" "$@" "$url$path"; } # path, curl's arguments: the answer
code() { path=$1; shift; status -H "$A" -H "$J" "$@" "$url$path"; } # the same: the answer's status; the answer is in body
post() { code "$1" -d "$2"; } # path, body
is_in() { call "/v1/campaigns/$1" | grep -q "\"state\":\"$2\",\"reason\""; } # campaign, its state
sql() { sqlite3 -cmd '.timeout 5000' "$data/partune.db" "$1"; }
rows() { sql "SELECT count(*) FROM trial WHERE campaign = '$id' AND $1"; } # a condition: how many trials of campaign $id
