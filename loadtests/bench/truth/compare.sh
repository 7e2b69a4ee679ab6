#!/usr/bin/env bash
# Our figures beside the truth, sglang-bench's and AIPerf's, on one server of known delays:
#   compare.sh [RATE]
# The server writes down when it really wrote. Each client has it for itself, one after the other. Needs a release build
# and Python 3.12; downloads a wheel of sglang (39 MB, one file of it is used) and, with AIPERF=1, AIPerf. A few minutes.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
rate=${1:-500}
cache=${XDG_CACHE_HOME:-$HOME/.cache}/flotilla
binaries=${BINARIES:-${CARGO_TARGET_DIR:-$cache/target}/release}
python=${PYTHON:-python3.12} # the wheel is for 3.12
peers=$cache/peers
out=${OUT:-$cache/bench-truth}
port=${PORT:-21850}
url=http://127.0.0.1:$port
requests=$((rate * 20))
tokens=16
mkdir -p "$out" "$peers/sglang"
rm -f "$out"/*-truth.json

"$python" "$here/tokenizer.py" "$out/tokenizer"
extension=$peers/sglang/_bench.cpython-312-x86_64-linux-gnu.so
if [ ! -f "$extension" ]; then
    "$python" -m pip download --quiet --no-deps --dest "$peers/sglang" sglang==0.5.23
    unzip -q -o -j "$peers"/sglang/sglang-0.5.23-*.whl "sglang/srt/rust_extensions/$(basename "$extension")" -d "$peers/sglang"
fi

stub=
stop() { [ -z "$stub" ] || { kill "$stub"; wait "$stub" 2>/dev/null || true; stub=; }; }
trap stop EXIT

# beside NAME COMMAND...: runs a client against a fresh server and keeps what that server says it did.
beside() {
    local name=$1
    shift
    "$binaries/flotilla-load" stub --port "$port" --ttft-ms 60 --itl-ms 10 >/dev/null &
    stub=$!
    until curl -sf -o /dev/null "$url/health"; do kill -0 "$stub"; sleep 0.05; done
    "$@" >"$out/$name.txt" 2>&1 || { tail -n 20 "$out/$name.txt"; return 1; }
    curl -sf "$url/truth" >"$out/$name-truth.json"
    stop
}

beside ours "$binaries/flotilla-load" live --quiet --url "$url" --request-rate "$rate" --num-prompts "$requests" \
    --input-len 32 --output-len "$tokens" --warmup 2 --json "$out/ours.json" --vllm-json "$out/ours-vllm.json"

rm -f "$out/sglang.jsonl"
run='import importlib.util as u,sys;s=u.spec_from_file_location("_bench",sys.argv[1]);m=u.module_from_spec(s);s.loader.exec_module(m);m.run_argv(["sglang-bench"]+sys.argv[2:])'
beside sglang-bench "$python" -c "$run" "$extension" --backend vllm-chat --base-url "$url" --model stub \
    --tokenizer "$out/tokenizer" --dataset-name random-ids --num-prompts "$requests" --random-input-len 32 \
    --random-output-len "$tokens" --random-range-ratio 1 --request-rate "$rate" --disable-tqdm \
    --output-file "$out/sglang.jsonl"

if [ "${AIPERF:-0}" = 1 ]; then
    [ -x "$peers/aiperf/bin/aiperf" ] || { "$python" -m venv "$peers/aiperf"; "$peers/aiperf/bin/pip" install --quiet aiperf==0.13.0; }
    # A Python client: a tenth of the rate is what it holds without being late itself.
    beside aiperf "$peers/aiperf/bin/aiperf" profile --model stub --url "$url" --endpoint-type chat --streaming \
        --tokenizer "$out/tokenizer" --synthetic-input-tokens-mean 32 --output-tokens-mean "$tokens" \
        --request-rate "$((rate / 10))" --request-count "$requests" --random-seed 7 --use-server-token-count \
        --extra-inputs ignore_eos:true --ui none --artifact-dir "$out/aiperf"
fi
"$python" "$here/table.py" "$out"
