#!/bin/sh
# install-packages.sh SRC DIR: install what the browser tests and ESLint need in DIR, the locked npm packages of SRC.
#
# SRC, this folder of the source tree, is only read, and nothing is written to the home directory. DIR/installed is newer than the lock file afterwards.
# Exit codes: 0 installed, 1 npm or its registry cannot be had (one line on stderr says why; DIR/npm.log has the rest),
# 2 what came is not what the lock file names.
# npm by itself waits five minutes for each silent request, three times. Here it gives up after half a minute, and where an
# earlier call found nobody (its log is there) after eight seconds. npm's own variables, where they are set, win.
set -eu
src=$1
dir=$2

absent() { # why
    echo "npm packages: $*" >&2
    exit 1
}

command -v npm >/dev/null 2>&1 || absent "npm is not installed (Debian: apt-get install npm)"

mkdir -p "$dir"
for f in package.json package-lock.json .npmrc; do
    cp -f "$src/$f" "$dir/$f"
    chmod u+w "$dir/$f"
done
cd "$dir"
if [ -f npm.log ]; then retries=0 wait_ms=8000; else retries=1 wait_ms=15000; fi
npm_config_cache=$PWD/cache npm_config_update_notifier=false
npm_config_fetch_retries=${npm_config_fetch_retries:-$retries}
npm_config_fetch_retry_mintimeout=${npm_config_fetch_retry_mintimeout:-1000}
npm_config_fetch_retry_maxtimeout=${npm_config_fetch_retry_maxtimeout:-5000}
npm_config_fetch_timeout=${npm_config_fetch_timeout:-$wait_ms}
export npm_config_cache npm_config_update_notifier npm_config_fetch_retries npm_config_fetch_retry_mintimeout \
    npm_config_fetch_retry_maxtimeout npm_config_fetch_timeout
status=0
# One question before the many: npm ci asks for each package, fifteen at a time, and waits for each as long.
timeout -k 5 240 npm view playwright-core version --loglevel=error >npm.log 2>&1 &&
    timeout -k 5 240 npm ci --ignore-scripts --no-audit --no-fund --loglevel=error >npm.log 2>&1 || status=$?
if grep -q EINTEGRITY npm.log; then
    cat npm.log >&2
    exit 2
fi
if [ "$status" != 0 ]; then
    # npm's first error that is more than a code, without its prefix.
    why=$(sed -n -e 's/^npm \(ERR!\|error\) //p' npm.log | grep -vE '^(code|syscall|errno|network *$|A complete log| *at )' | head -n 1)
    [ "$status" != 124 ] || why="npm took longer than four minutes"
    absent "${why:-npm ci ended with status $status}"
fi
rm -rf cache
touch installed
