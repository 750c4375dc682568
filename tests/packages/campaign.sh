# Sourced by tests of images: a campaign that "sh -c" runs in one, given the daemon's data directory. The daemon's words are
# the image's, but for a free port.
# shellcheck disable=SC2034,SC2016 # its user, and the shell in the image, expand it
campaign='
set -eu
export NO_COLOR=1 PARTUNE_DATA="$1"
log=$(mktemp)
partuned --data "$1" --listen 127.0.0.1:0 2>"$log" &
daemon=$!
trap "kill $daemon; wait $daemon || :; rm $log" EXIT
tries=600
until grep -q "ready at" "$log"; do
    tries=$((tries - 1))
    [ $tries -gt 0 ] || { cat "$log"; exit 1; }
    sleep 0.1
done
PARTUNE_SERVER=$(sed -n "s/.*ready at \([^ ]*\).*/\1/p" "$log")
export PARTUNE_SERVER
partune submit --watch /usr/local/share/doc/partune/examples/mixtral-simulated.json
partune show last
'
