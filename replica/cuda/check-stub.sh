#!/usr/bin/env bash
# Type-checks the replica's CUDA code on a machine with neither a GPU nor a CUDA toolkit: a stand-in for nvcc
# makes empty kernels, and nothing is linked. Needs cargo and binutils (ar).
#
#   check-stub.sh                          cargo check -p replica --features cuda
#   check-stub.sh clippy -p replica ...    any other cargo command
#
# It builds in target/cuda-stub: the environment below changes what build scripts see.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
toolkit=${CARGO_TARGET_DIR:-$root/target}/cuda-stub

mkdir -p "$toolkit/bin" "$toolkit/include" "$toolkit/lib"
install -m755 "$here/fake-nvcc.sh" "$toolkit/bin/nvcc"
export CUDA_HOME=$toolkit CUDA_PATH=$toolkit CUDA_ROOT=$toolkit NVCC=$toolkit/bin/nvcc
export PATH=$toolkit/bin:$PATH
# Without these the build scripts would ask a driver that is not there.
export CUDA_COMPUTE_CAP=${CUDA_COMPUTE_CAP:-90} CUDARC_CUDA_VERSION=${CUDARC_CUDA_VERSION:-13000}
export CARGO_TARGET_DIR=$toolkit/target

cd "$root"
if [ $# -eq 0 ]; then
  set -- check -p replica --features cuda
fi
exec cargo "$@"
