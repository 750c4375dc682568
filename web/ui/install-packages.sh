#!/bin/sh
# install-packages.sh SRC DIR: install the locked npm packages of SRC (this folder of the source tree) in DIR.
#
# SRC is only read, and nothing is written to the home directory. DIR/installed is newer than the lock file afterwards.
set -eu
src=$1
dir=$2

command -v npm >/dev/null 2>&1 || {
    echo "install-packages.sh: npm is missing (Debian: apt-get install npm)" >&2
    exit 1
}

mkdir -p "$dir"
for f in package.json package-lock.json .npmrc; do
    cp -f "$src/$f" "$dir/$f"
    chmod u+w "$dir/$f"
done
cd "$dir"
npm_config_cache=$PWD/cache npm_config_update_notifier=false
export npm_config_cache npm_config_update_notifier
npm ci --ignore-scripts --no-audit --no-fund --loglevel=error >npm.log 2>&1 || {
    cat npm.log >&2
    exit 1
}
rm -rf cache
touch installed
