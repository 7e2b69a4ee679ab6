#!/usr/bin/env bash
# Our replica beside llama.cpp (PyPI xllamacpp), one after the other, on the same file and machine:
#   compare.sh [THREADS [REPETITIONS]]
# Needs a release build and the fetched default model (deploy/up.sh makes both). Trust ratios of one run on a quiet
# machine. llama.cpp runs twice: on the very file, and on its fastest 4-bit type made of the same weights.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
threads=${1:-2} repetitions=${2:-2}
cache=${XDG_CACHE_HOME:-$HOME/.cache}/flotilla
target=${CARGO_TARGET_DIR:-$cache/target}
model=$cache/models/SmolLM2-135M-Instruct.Q4_1.gguf
fast=$cache/models/SmolLM2-135M-Instruct.Q4_0.gguf
venv=$cache/venv-peers
port=${PORT:-8391}

[ -x "$venv/bin/python" ] || python3 -m venv "$venv"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check xllamacpp gguf numpy
[ -f "$fast" ] || { "$venv/bin/python" "$here/requant.py" "$model" "$fast.part" Q4_0 && mv "$fast.part" "$fast"; }
cc -O3 -march=native -o "$cache/membw" "$here/membw.c" -lpthread
echo "memory: $("$cache/membw" | grep "threads=$threads read")"

# measure NAME MODEL COMMAND...: starts a server, waits for its model, loads it, ends it.
measure() {
    local name=$1 served=$2 begun pid
    shift 2
    begun=$(date +%s.%N)
    "$@" >"$cache/$name.log" 2>&1 &
    pid=$!
    until curl -sf -m 2 "http://127.0.0.1:$port/v1/models" >/dev/null; do
        kill -0 $pid || { tail -n 5 "$cache/$name.log"; return 1; }
        sleep 0.05
    done
    echo "$name: load $(echo "$(date +%s.%N) - $begun" | bc) s"
    python3 "$here/bench.py" "http://127.0.0.1:$port/v1" "$served" --pid $pid --reps "$repetitions" 2>/dev/null
    kill $pid && wait $pid || true
}

measure flotilla SmolLM2 "$target/release/flotilla-replica" --model "$model" --served-model-name SmolLM2 \
    --port "$port" --threads "$threads"
measure llama.cpp-Q4_1 any "$venv/bin/python" "$here/serve_llamacpp.py" "$model" "$port" "$threads" 16
measure llama.cpp-Q4_0 any "$venv/bin/python" "$here/serve_llamacpp.py" "$fast" "$port" "$threads" 16
