#!/bin/sh
# Type-checks the whole workspace for 64-bit ARM; nothing is linked or run. Where the target's standard library or its
# C compiler is missing it counts as skipped, by name.
set -eu
. "$(dirname "$0")/toolchain.sh"

target=aarch64-unknown-linux-gnu

skip() {
    echo "SKIPPED check_arm: $1"
    exit 0
}

need_rust
[ -e "$(rustc --print target-libdir --target "$target")" ] || skip "rustup target add $target"
command -v aarch64-linux-gnu-gcc >/dev/null || skip "aarch64-linux-gnu-gcc is missing (gcc-aarch64-linux-gnu)"
cd "$root"
exec cargo check --workspace --locked --target "$target" "$@"
