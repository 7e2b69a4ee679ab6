#!/bin/sh
# From a fresh clone to a running fleet: checks the tools, builds, and runs `flotilla up` with the arguments
# given here (see `deploy/up.sh --help`). `flotilla up` fetches the default model when it is absent.
set -eu
. "$(dirname "$0")/toolchain.sh"

need_to_build
cd "$root"
cargo build --release --locked --bins --package gateway --package replica --package deploy
cd - >/dev/null
exec "$CARGO_TARGET_DIR/release/flotilla" up "$@"
