# Sourced by up.sh and test.sh: what building needs, where builds go.
# Sets `root` (the repository) and CARGO_TARGET_DIR (outside the clone, shared by both commands).

root=$(cd "$(dirname "$0")/.." && pwd)
cache=${XDG_CACHE_HOME:-${HOME:?HOME is not set}/.cache}/flotilla
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$cache/target}"

rust_wanted=1.95

# Prints the Debian packages that are missing among `command:package` pairs.
missing_packages() {
    for pair in "$@"; do
        case ${pair%%:*} in
            pip) python3 -m pip --version ;;
            venv) python3 -c 'import ensurepip, venv' ;;
            headers) test -e /usr/include/stdlib.h ;;
            certificates) test -e /etc/ssl/certs/ca-certificates.crt ;;
            *) command -v "${pair%%:*}" ;;
        esac >/dev/null 2>&1 || printf '%s ' "${pair#*:}"
    done
}

# Installs what is missing when root; otherwise says the one line that does.
need() {
    missing=$(missing_packages "$@")
    [ -z "$missing" ] && return 0
    line="apt-get update && apt-get install -y --no-install-recommends ${missing% }"
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        echo "installing ${missing% }"
        log=$(mktemp)
        DEBIAN_FRONTEND=noninteractive sh -c "$line" >"$log" 2>&1 </dev/null || {
            tail -n 20 "$log" >&2
            echo "could not install ${missing% }" >&2
            exit 1
        }
        rm -f "$log"
    else
        echo "some packages are missing; run this as root, then try again:" >&2
        echo "  $line" >&2
        exit 1
    fi
}

need_rust() {
    [ -x "${CARGO_HOME:-$HOME/.cargo}/bin/cargo" ] && PATH="${CARGO_HOME:-$HOME/.cargo}/bin:$PATH"
    command -v cargo >/dev/null || {
        echo "Rust is missing: install version $rust_wanted or later with rustup, then try again" >&2
        exit 1
    }
    have=$(rustc --version | cut -d' ' -f2)
    oldest=$(printf '%s\n%s\n' "$rust_wanted" "$have" | sort -V | head -n 1)
    [ "$oldest" = "$rust_wanted" ] || {
        echo "Rust $have is too old: version $rust_wanted or later is needed (rustup update)" >&2
        exit 1
    }
}

need_to_build() {
    need_rust
    need cc:gcc c++:g++ headers:libc6-dev make:make cmake:cmake python3:python3 pip:python3-pip \
        certificates:ca-certificates "$@"
}
