# The replica, for CPU. Two ways to build it, from the repository's root:
#   from source:          docker build -f deploy/docker/replica.Dockerfile -t flotilla-replica:0.1.0 .
#   from a built binary:  deploy/docker/build.sh (stage `prebuilt`; the binary lies in deploy/docker/bin/)
# `prebuilt` comes first so that builders which run every stage up to the target don't fetch a compiler for it.
ARG BASE=debian:bookworm-slim
ARG RUST=rust:1.95-bookworm

FROM ${BASE} AS prebuilt
COPY deploy/docker/bin/flotilla-replica /usr/local/bin/flotilla-replica
COPY deploy/docker/bin/flotilla-replica.cdx.json /usr/share/sbom/
USER 65532:65532
EXPOSE 8001
ENTRYPOINT ["/usr/local/bin/flotilla-replica"]

FROM ${RUST} AS built
RUN apt-get update && apt-get install -y --no-install-recommends cmake && rm -rf /var/lib/apt/lists/*
WORKDIR /source
COPY . .
RUN cargo build --release --locked --package replica && cp target/release/flotilla-replica /
RUN deploy/docker/sbom.sh replica >/flotilla-replica.cdx.json

FROM ${BASE}
COPY --from=built /flotilla-replica /usr/local/bin/flotilla-replica
COPY --from=built /flotilla-replica.cdx.json /usr/share/sbom/
USER 65532:65532
EXPOSE 8001
ENTRYPOINT ["/usr/local/bin/flotilla-replica"]
