# The gateway. Two ways to build it, from the repository's root:
#   from source:          docker build -f deploy/docker/gateway.Dockerfile -t flotilla-gateway:0.1.0 .
#   from a built binary:  deploy/docker/build.sh (stage `prebuilt`; the binary lies in deploy/docker/bin/)
# `prebuilt` comes first so that builders which run every stage up to the target don't fetch a compiler for it.
ARG BASE=debian:bookworm-slim
ARG RUST=rust:1.95-bookworm

FROM ${BASE} AS prebuilt
COPY deploy/docker/bin/flotilla-gateway /usr/local/bin/flotilla-gateway
COPY deploy/docker/bin/flotilla-gateway.cdx.json /usr/share/sbom/
USER 65532:65532
EXPOSE 8000 9000
ENTRYPOINT ["/usr/local/bin/flotilla-gateway"]

FROM ${RUST} AS built
RUN apt-get update && apt-get install -y --no-install-recommends cmake && rm -rf /var/lib/apt/lists/*
WORKDIR /source
COPY . .
RUN cargo build --release --locked --package gateway && cp target/release/flotilla-gateway /
RUN deploy/docker/sbom.sh gateway >/flotilla-gateway.cdx.json

FROM ${BASE}
COPY --from=built /flotilla-gateway /usr/local/bin/flotilla-gateway
COPY --from=built /flotilla-gateway.cdx.json /usr/share/sbom/
USER 65532:65532
EXPOSE 8000 9000
ENTRYPOINT ["/usr/local/bin/flotilla-gateway"]
