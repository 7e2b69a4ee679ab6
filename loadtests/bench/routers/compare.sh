#!/usr/bin/env bash
# Four CPU replicas with small KV pools behind four routers, same seeds and same workloads:
#   compare.sh [SEED]
# Ours, nginx round robin, and sglang-router and vllm-router (PyPI wheels, cache_aware). Needs a release build and the
# fetched default model (deploy/up.sh makes both) and nginx; about eleven minutes. Every round has all routers, each
# round another first, so that a machine that grows slower is nobody's loss. Trust a run on a quiet machine only.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
seed=${1:-1}
cache=${XDG_CACHE_HOME:-$HOME/.cache}/flotilla
binaries=${BINARIES:-${CARGO_TARGET_DIR:-$cache/target}/release}
model=${MODEL:-$cache/models/SmolLM2-135M-Instruct.Q4_1.gguf}
venv=$cache/peers/routers
out=${OUT:-$cache/bench-routers}
first=${PORT:-21800}
rounds=${ROUNDS:-2}
read -ra routers <<<"${ROUTERS:-flotilla nginx sglang-router vllm-router}"
pool_bytes=${POOL_BYTES:-80000000} # 108 blocks: 3,456 tokens a replica
rate_chat=${RATE_CHAT:-0.5} rate_shared=${RATE_SHARED:-1.8}
sessions_chat=${SESSIONS_CHAT:-16} requests_shared=${REQUESTS_SHARED:-56}

[ -x "$venv/bin/python" ] || python3 -m venv "$venv"
for wheel in sglang-router vllm-router; do
    [ -x "$venv/bin/$wheel" ] || "$venv/bin/pip" install --quiet --disable-pip-version-check "$wheel"
done
mkdir -p "$out"
rm -f "$out"/*-[0-9]*.json
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

is_taken() { curl -s -m 2 -o /dev/null "$1/"; }

start_replicas() {
    for index in 0 1 2 3; do
        if is_taken "${replicas[index]}"; then echo "${replicas[index]} is taken" >&2; return 1; fi
        "$binaries/flotilla-replica" --model "$model" --served-model-name SmolLM2 --port $((first + index)) \
            --threads 1 --kv-cache-memory-bytes "$pool_bytes" >"$out/replica-$index.log" 2>&1 &
        children+=($!)
    done
    for replica in "${replicas[@]}"; do until_answers "$replica/ready"; done
}

start_router() {
    if is_taken "http://127.0.0.1:$front"; then echo "port $front is taken" >&2; return 1; fi
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

# measure ROUTER WORKLOAD ROUND FLAGS...: fresh caches, fresh router; the first four children are the replicas.
measure() {
    local router=$1 workload=$2 round=$3
    local name=$router-$workload-$round
    shift 3
    echo "$name" >&2
    start_replicas
    start_router "$router"
    "$binaries/flotilla-load" live --quiet --url "http://127.0.0.1:$front" --model SmolLM2 \
        --seed $((seed + round)) --workload "$workload" "${metrics[@]}" --ttft-ms 2000 --tpot-ms 250 \
        --error-budget 1 --json "$out/$name.json" --html "$out/$name.html" "$@" >"$out/$name.txt"
    kill -0 "${children[@]}" || { echo "$name: somebody died; see $out" >&2; return 1; }
    stop
}

for ((round = 0; round < rounds; round++)); do
    for ((place = 0; place < ${#routers[@]}; place++)); do
        router=${routers[(place + round) % ${#routers[@]}]}
        measure "$router" multi-turn $round --num-prompts "$sessions_chat" --request-rate "$rate_chat" --turns 4-6 \
            --num-prefixes 12 --prefix-len 100-150 --input-len 60-100 --output-len 12-20 --think-ms 500-2000
        measure "$router" shared-prefix $round --num-prompts "$requests_shared" --request-rate "$rate_shared" \
            --num-prefixes 24 --zipf 0.8 --prefix-len 400-500 --input-len 16-32 --output-len 8-16
    done
done
python3 "$here/table.py" "$out" "${routers[@]}"
# The simulation's prediction of ours, by machines as fast as the other rounds say they are.
case " ${routers[*]} " in *" flotilla "*) ;; *) exit ;; esac
for ((round = 0; round < rounds; round++)); do
    from=()
    for other in "$out"/flotilla-*-[0-9]*.json; do
        [[ $rounds != 1 && $other == *-$round.json ]] || from+=(--from "$other")
    done
    "$binaries/flotilla-load" calibrate --machines "$here/../../scenarios/cpu_four.toml" "${from[@]}" \
        "$out/flotilla-multi-turn-$round.json" "$out/flotilla-shared-prefix-$round.json" || true
done
