# Sourced by ./demo and ./check: .venv beside them, and what is installed in it. Both share it; a stamp remembers what was done.
# shellcheck shell=bash

CPU_TORCH=https://download.pytorch.org/whl/cpu
TRAINING=(torch==2.13.0 numpy pillow scikit-learn)
PROGRAM=$(basename "$0")
VENV_PYTHON=.venv/bin/python

say() { printf '==> %s\n' "$*"; }

fail() { # WHAT HINT
    printf '%s: %s\nhint: %s\n' "$PROGRAM" "$1" "$2" >&2
    exit 1
}

need_disk() { # GIB
    local free
    free=$(df -Pk . | awk 'NR == 2 { print $4 }')
    [ "$free" -ge $(($1 * 1024 * 1024)) ] ||
        fail "only $((free / 1024)) MiB are free in $PWD, and $1 GiB are needed" \
            "free some space, or move this folder to a larger disk"
}

find_python() { # prints the path of a Python that is new enough
    local candidate found=""
    for candidate in ${ALLRANKS_PYTHON:+"$ALLRANKS_PYTHON"} python3.14 python3.13 python3.12 python3.11 python3; do
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            command -v "$candidate"
            return
        fi
        [ -z "${ALLRANKS_PYTHON:-}" ] ||
            fail "ALLRANKS_PYTHON=$ALLRANKS_PYTHON is not a Python 3.11 or newer" "name one that is, or unset it"
        found=${found:-$("$candidate" -V 2>/dev/null || true)}
    done
    fail "Python 3.11 or newer is needed, and ${found:-no Python} was found" \
        "install one (apt-get install python3 python3-venv), or name it: ALLRANKS_PYTHON=/path/to/python $0"
}

need_venv_module() { # PYTHON
    local package
    "$1" -c 'import venv, ensurepip' 2>/dev/null && return
    package=$("$1" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        say "installing $package"
        { apt-get update && apt-get install -y "$package"; } >/dev/null 2>&1 || true
    fi
    "$1" -c 'import venv, ensurepip' 2>/dev/null ||
        fail "$1 has no venv module" "apt-get install python3-venv (or $package), then run this again"
}

make_venv() { # GIB; keeps a .venv that works
    local python
    "$VENV_PYTHON" -c 'import sys, pip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && return
    python=$(find_python)
    need_disk "$1"
    need_venv_module "$python"
    say "making .venv with $("$python" -V) ($python)"
    "$python" -m venv --clear .venv >/dev/null ||
        fail "$python could not make .venv" "see the lines above; a full disk and a read-only folder are the usual causes"
}

install_key() { # PIP-WORDS…
    # The folder is part of the key: scripts in .venv/bin hold its path.
    { cat pyproject.toml && printf '%s\n' "$PWD" "$@"; } | sha256sum
}

is_installed() { # NAME PIP-WORDS…
    local name=$1
    shift
    [ "$(cat ".venv/.installed-$name" 2>/dev/null)" = "$(install_key "$@")" ]
}

install() { # NAME GIB PIP-WORDS…; asks pip only when the words or pyproject.toml have changed
    local name=$1 gib=$2
    shift 2
    ! is_installed "$name" "$@" || return 0
    need_disk "$gib"
    say "installing $name (this may take minutes; all of pip's words are in .venv/pip.log)"
    "$VENV_PYTHON" -m pip install --progress-bar off "$@" 2>&1 </dev/null | tee .venv/pip.log |
        sed -un 's/^ *\(Downloading\|Building wheel\|Installing collected\)/    \1/p' ||
        fail "pip could not install $name: $(grep -v '^\[notice\]' .venv/pip.log | tail -n 1)" "$(pip_hint)"
    # Compiled once: every command starts twice as fast where Python may not write caches itself.
    "$VENV_PYTHON" -m compileall -q src || true
    install_key "$@" >".venv/.installed-$name"
}

pip_hint() {
    if grep -q 'No space left' .venv/pip.log; then
        echo "free some space and run $0 again"
    elif grep -qi 'retrying\|connection' .venv/pip.log; then
        echo "the package index cannot be reached: is there a network ('pip config list' names the index)? Then run $0 again"
    else
        echo "see .venv/pip.log in $PWD; 'pip config list' names the package index that was asked"
    fi
}

has_nvidia() { [ -e /proc/driver/nvidia/version ] || [ -e /dev/dxg ]; }

answers() { # URL; pip would wait for minutes
    "$VENV_PYTHON" -c 'import sys, urllib.request; urllib.request.urlopen(sys.argv[1], timeout=5)' "$1" 2>/dev/null
}

install_training() {
    local index=() url=${ALLRANKS_TORCH_INDEX:-}
    is_installed images "${TRAINING[@]}" && [ -z "$url" ] && return
    # PyPI's torch for Linux on x86 brings CUDA along, which is of no use without a GPU.
    if [ -z "$url" ] && ! has_nvidia; then
        if answers "$CPU_TORCH/torch/"; then
            url=$CPU_TORCH
        else
            say "$CPU_TORCH cannot be reached: torch comes from pip's index, where PyPI's brings about 3 GB, most of it CUDA"
        fi
    fi
    [ -z "$url" ] || index=(--index-url "$url")
    install torch 3 ${index[@]+"${index[@]}"} "${TRAINING[0]}"
    install images 1 "${TRAINING[@]}"
}
