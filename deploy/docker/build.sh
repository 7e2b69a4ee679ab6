#!/bin/sh
# Builds both images around binaries: build.sh [--base IMAGE] [--binaries FOLDER] [--tag VERSION]
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
base=debian:bookworm-slim
binaries=
tag=0.1.0
while [ $# -gt 0 ]; do
    case $1 in
        --base) base=$2 ;;
        --binaries) binaries=$2 ;;
        --tag) tag=$2 ;;
        *) echo "usage: $0 [--base IMAGE] [--binaries FOLDER] [--tag VERSION]" >&2; exit 2 ;;
    esac
    shift 2
done
if [ -z "$binaries" ]; then
    target=${CARGO_TARGET_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/flotilla/target}
    (cd "$root" && CARGO_TARGET_DIR=$target cargo build --release --locked --package gateway --package replica)
    binaries=$target/release
fi
# A context of its own: the binaries, what they are made of, and nothing else.
context=$(mktemp -d)
trap 'rm -rf "$context"' EXIT
mkdir -p "$context/deploy/docker/bin"
for name in gateway replica; do
    cp "$binaries/flotilla-$name" "$context/deploy/docker/bin/"
    strip --strip-debug "$context/deploy/docker/bin/flotilla-$name" 2>/dev/null || true
    "$root/deploy/docker/sbom.sh" "$name" >"$context/deploy/docker/bin/flotilla-$name.cdx.json"
    docker build --quiet --target prebuilt --build-arg BASE="$base" \
        -f "$root/deploy/docker/$name.Dockerfile" -t "flotilla-$name:$tag" "$context" >/dev/null
    echo "flotilla-$name:$tag"
done
