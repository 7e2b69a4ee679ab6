#!/usr/bin/env bash
# The routing proof: each scenario at 0.9 of the oracle's capacity, every policy, one process a core:
#   prove.sh [SEEDS] [SCENARIO...]
# Prints each table and, under it, what is promised and missed. Needs a release build.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
seeds=${1:-1}
[ $# = 0 ] || shift
[ $# != 0 ] || set -- four chat rag agents mixed unequal kv_tight wide
cache=${XDG_CACHE_HOME:-$HOME/.cache}/flotilla
binaries=${BINARIES:-${CARGO_TARGET_DIR:-$cache/target}/release}
out=${OUT:-$cache/bench-routing}
policies=${POLICIES:-all}
mkdir -p "$out"
export binaries here out seeds policies
# shellcheck disable=SC2016 # the inner shell's own variables
printf '%s\n' "$@" | xargs -P "$(nproc)" -I{} bash -c '"$binaries/flotilla-load" sim "$here/../../scenarios/$1.toml" \
    --policy "$policies" --at-capacity 0.9 --seeds "$seeds" >"$out/$1.txt" 2>&1' prove {} || status=1
for scenario in "$@"; do
    echo "== $scenario"
    cat "$out/$scenario.txt"
done
exit "${status:-0}"
