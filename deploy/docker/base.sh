#!/bin/sh
# Makes a small Debian base image without an image registry. Needs root, mmdebstrap and a Docker daemon.
set -eu
tag=${1:-flotilla-base:bookworm}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
# Unpacked and not configured: our binaries need libc and libgcc, and no shell.
mmdebstrap --quiet --variant=extract --include=base-files,libc6,libgcc-s1 \
    --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
    --dpkgopt='path-exclude=/usr/share/locale/*' bookworm "$scratch/base.tar"
docker import "$scratch/base.tar" "$tag" >/dev/null
echo "$tag"
