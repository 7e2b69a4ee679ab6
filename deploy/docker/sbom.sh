#!/bin/sh
# Prints a bill of materials of one binary as CycloneDX JSON: sbom.sh gateway|replica
# Every crate that is linked into it, as cargo resolves them, with its licence and the digest in Cargo.lock.
set -eu
package=${1:?usage: $0 gateway|replica}
cd "$(dirname "$0")/../.."
cargo tree --locked --package "$package" --edges normal --prefix none --format '{p}|{l}' |
    sed 's/ (\*)$//; s/ ([^)]*)//g' | sort -u |
    awk -F '|' -v root="$package" '
        function quoted(text) { gsub(/[\\"]/, "\\\\&", text); return "\"" text "\"" }
        function value(line) { sub(/^[^"]*"/, "", line); sub(/".*$/, "", line); return line }
        # Cargo.lock first: name, version, and the checksum of crates that come from a registry.
        FILENAME == "Cargo.lock" {
            if ($0 ~ /^name = /) name = value($0)
            if ($0 ~ /^version = /) version = value($0)
            if ($0 ~ /^checksum = /) digest[name " v" version] = value($0)
            next
        }
        $1 == "" { next }
        {
            split($1, part, " v")
            entry = sprintf("\"type\": \"library\", \"name\": %s, \"version\": %s, \"purl\": %s", quoted(part[1]),
                quoted(part[2]), quoted("pkg:cargo/" part[1] "@" part[2]))
            # Some crates still write / where SPDX has OR.
            gsub(/ *\/ */, " OR ", $2)
            if ($2 != "") entry = entry sprintf(", \"licenses\": [{\"expression\": %s}]", quoted($2))
            if ($1 in digest) entry = entry sprintf(", \"hashes\": [{\"alg\": \"SHA-256\", \"content\": \"%s\"}]", digest[$1])
            if (part[1] == root) { own = part[2]; next }
            list = list (list == "" ? "" : ",") "\n    {" entry "}"
        }
        END {
            if (own == "") { print "no such package: " root >"/dev/stderr"; exit 1 }
            print "{\n  \"bomFormat\": \"CycloneDX\", \"specVersion\": \"1.5\", \"version\": 1,"
            printf "  \"metadata\": {\"component\": {\"type\": \"application\", \"name\": \"flotilla-%s\", \"version\": \"%s\"}},\n", root, own
            print "  \"components\": [" list "\n  ]\n}"
        }' Cargo.lock -
