#!/usr/bin/env bash
# Four CPU replicas with small KV pools behind four routers, one after the other, same seed and same workloads:
#   compare.sh [SEED]
# Ours, nginx round robin, and sglang-router and vllm-router (PyPI wheels, cache_aware). Needs a release build and the
# fetched default model (deploy/up.sh makes both) and nginx; under ten minutes. Trust one run on a quiet machine.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
seed=${1:-1}
cache=${XDG_CACHE_HOME:-$HOME/.cache}/flotilla
binaries=${BINARIES:-${CARGO_TARGET_DIR:-$cache/target}/release}
model=$cache/models/SmolLM2-135M-Instruct.Q4_1.gguf
venv=$cache/peers/routers
out=${OUT:-$cache/bench-routers}
first=${PORT:-21800}
routers=${ROUTERS:-flotilla nginx sglang-router vllm-router}
pool_bytes=${POOL_BYTES:-80000000} # 108 blocks: 3,456 tokens a replica
rate_chat=${RATE_CHAT:-0.4} rate_shared=${RATE_SHARED:-1.6}

[ -x "$venv/bin/python" ] || python3 -m venv "$venv"
for wheel in sglang-router vllm-router; do
    [ -x "$venv/bin/$wheel" ] || "$venv/bin/pip" install --quiet --disable-pip-version-check "$wheel"
done
mkdir -p "$out"
front=$((first + 10))
replicas=() metrics=() children=()
for index in 0 1 2 3; do
    replicas+=("http://127.0.0.1:$((first + index))")
    metrics+=(--metrics "http://127.0.0.1:$((first + index))")
done
stop() { [ ${#children[@]} = 0 ] || { kill "${children[@]}" 2>/dev/null; wait "${children[@]}" 2>/dev/null; } || true; children=(); }
trap stop EXIT

# until_answers URL: waits two minutes at most.
until_answers() {
    for _ in $(seq 600); do curl -sf -m 2 -o /dev/null "$1" && return; sleep 0.2; done
    echo "$1 does not answer; see $out" >&2
    return 1
}

start_replicas() {
    for index in 0 1 2 3; do
        "$binaries/flotilla-replica" --model "$model" --served-model-name SmolLM2 --port $((first + index)) \
            --threads 1 --kv-cache-memory-bytes "$pool_bytes" >"$out/replica-$index.log" 2>&1 &
        children+=($!)
    done
    for replica in "${replicas[@]}"; do until_answers "$replica/ready"; done
}

start_router() {
    if curl -s -m 2 -o /dev/null "http://127.0.0.1:$front/"; then echo "port $front is taken" >&2; return 1; fi
    # exec: the process that is stopped later is the router, not a shell around it.
    case $1 in
    flotilla)
        local flags=()
        for replica in "${replicas[@]}"; do flags+=(--replica "$replica"); done
        exec "$binaries/flotilla-gateway" --port $front --admin-port $((first + 11)) "${flags[@]}" ;;
    nginx)
        sed -e "s/PORT/$front/" -e "s#OUT#$out#" "$here/nginx.conf" >"$out/nginx.conf"
        printf 'server 127.0.0.1:%s;\n' $((first)) $((first + 1)) $((first + 2)) $((first + 3)) >"$out/replicas.conf"
        exec nginx -p "$out" -c "$out/nginx.conf" ;;
    sglang-router)
        exec "$venv/bin/sglang-router" launch --host 127.0.0.1 --port $front --worker-urls "${replicas[@]}" \
            --policy cache_aware --prometheus-port $((first + 12)) ;;
    vllm-router)
        exec "$venv/bin/vllm-router" --host 127.0.0.1 --port $front --worker-urls "${replicas[@]}" \
            --policy cache_aware --prometheus-port $((first + 12)) ;;
    esac >"$out/$1.log" 2>&1 &
    children+=($!)
    until_answers "http://127.0.0.1:$front/v1/models"
}

# measure ROUTER WORKLOAD FLAGS...: fresh caches, fresh router.
measure() {
    local router=$1 workload=$2
    shift 2
    start_replicas
    start_router "$router"
    "$binaries/flotilla-load" live --quiet --url "http://127.0.0.1:$front" --model SmolLM2 --seed "$seed" \
        "${metrics[@]}" --ttft-ms 2000 --tpot-ms 250 --error-budget 1 --json "$out/$router-$workload.json" \
        --html "$out/$router-$workload.html" "$@" >"$out/$router-$workload.txt"
    stop
}

for router in $routers; do
    measure "$router" multi-turn --workload multi-turn --num-prompts 20 --request-rate "$rate_chat" --turns 4-6 \
        --num-prefixes 12 --prefix-len 100-150 --input-len 60-100 --output-len 12-20 --think-ms 500-2000
    measure "$router" shared-prefix --workload shared-prefix --num-prompts 80 --request-rate "$rate_shared" \
        --num-prefixes 24 --zipf 0.8 --prefix-len 400-500 --input-len 16-32 --output-len 8-16
done
# shellcheck disable=SC2086 # a list of names
python3 "$here/table.py" "$out" $routers
