#!/usr/bin/env bash
# The fast tests and the README's first lines on other Debians: other Pythons, another bash, a user who is not root.
# ./check --all calls it, with the marks of the tests. With --release it builds the wheel and the sdist there instead,
# and tries both with the versions of constraints.txt. It needs root, debootstrap and a network; without one it says so
# and passes. The systems are kept in .cache/systems, and made anew after two weeks.
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.."
source scripts/venv.sh
export PATH=$PATH:/usr/sbin:/sbin LC_ALL=C.UTF-8
SYSTEMS=$PWD/.cache/systems
MARKS=$1
SUITES=(trixie sid)
# Its Python is 3.11, as that of .venv may be.
{ [ "$MARKS" != --release ] && "$VENV_PYTHON" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))'; } ||
    SUITES+=(bookworm)

leave_out() { printf '    left out: the other systems: %s\n' "$1" && exit 0; }

make_system() { # SUITE MIRROR
    local root=$SYSTEMS/$1
    [ -z "$(find "$root/made" -mtime -14 2>/dev/null)" ] || return 0
    rm -rf --one-file-system "$root"
    mkdir -p "$root"
    debootstrap --variant=minbase --include=python3,python3-venv,ca-certificates,git "$@" >"$root.log" 2>&1 &&
        chroot "$root" useradd --create-home tester && touch "$root/made"
}

copy_in() { # SUITE; this checkout, and how packages are fetched here
    local root=$SYSTEMS/$1 checkout=$SYSTEMS/$1/home/tester/allranks file
    rm -rf --one-file-system "$checkout"
    mkdir "$checkout"
    git ls-files -coz --exclude-standard | tar --null --ignore-failed-read -T - -c | tar -xC "$checkout"
    for file in /etc/{resolv.conf,hosts,pip.conf,xdg/pip/*,ssl/certs/ca-certificates.crt}; do
        [ ! -f "$file" ] || command install -Dm644 "$file" "$root$file"
    done
    for file in root home/tester; do
        [ ! -f ~/.config/pip/pip.conf ] ||
            command install -Dm644 ~/.config/pip/pip.conf "$root/$file/.config/pip/pip.conf"
    done
    chroot "$root" chown -R tester: /home/tester
}

inside() { # SUITE USER COMMAND…; no mount and no process of it stays
    local root=$SYSTEMS/$1 user=$2 home words
    shift 2
    home=$(awk -F: -v u="$user" '$1 == u { print $6 }' "$root/etc/passwd")
    # Nothing else of this shell's.
    mapfile -t words < <(env | grep -iE '^(PIP_[A-Z_]+|SSL_CERT_[A-Z]+|[a-z]+_proxy)=')
    words=(env -i "HOME=$home" "USER=$user" LANG=C.UTF-8 PATH=/usr/bin:/bin:/usr/sbin:/sbin
        PIP_QUIET=2 "${words[@]}" "$@")
    # shellcheck disable=SC2016  # for the inner shell
    unshare --mount --propagation private --pid --fork --kill-child bash -ec '
        mount -t proc proc "$1/proc"
        mount --rbind /dev "$1/dev"
        exec setsid --wait chroot --userspec="$2" "$1" "${@:3}"' _ "$root" "$user" "${words[@]}" </dev/null
}

try_release() { # SUITE; the wheel as it is, the sdist with all extras, each in an environment of its own
    copy_in "$1"
    # shellcheck disable=SC2016  # for the inner shell
    inside "$1" tester bash -euc '
        cd ~/allranks
        first=$(sed -n "/^\`\`\`bash/,/^\`\`\`/{/^allranks/p;}; /^\`\`\`text/q" README.md)
        extras=$(sed -n "/^\[project.optional/,/^bench/{s/ = .*//p;}" pyproject.toml | grep -vx bench | paste -sd,)
        python3 -m venv ~/build
        ~/build/bin/pip install build
        rm -rf ~/dist
        ~/build/bin/python -m build --outdir ~/dist . >/dev/null
        cd ~
        for file in dist/*.whl "$(echo dist/*.tar.gz)[$extras]"; do
            python3 -m venv --clear ~/tried
            ~/tried/bin/pip install -c allranks/constraints.txt "$file"
            ~/tried/bin/pip check
            ! ~/tried/bin/pip freeze --exclude allranks | tr A-Z_ a-z- |
                grep -vxFf <(sed "s/ ;.*//" allranks/constraints.txt) ||
                { echo "these are not in constraints.txt" >&2 && exit 1; }
            output=$(PATH=~/tried/bin:$PATH; eval "$first"; allranks --version; allranks server stop)
            printf "%s\n" "${file##*/}, $(python3 -V)" "$output"
            [[ $output == *"rank 2 of 3, meet at 127."* ]]
        done'
}

try() { # SUITE; fails if anything in there does
    local suite=$1 user code=0
    copy_in "$suite"
    # shellcheck disable=SC2016  # for the inner shell
    inside "$suite" tester bash -euc '
        cd ~/allranks
        [ -x ~/venv/bin/python ] || python3 -m venv ~/venv
        ~/venv/bin/pip install -q -e ".[dev]"
        ~/venv/bin/python - <<END
import platform, tomllib
version = ".".join(platform.python_version_tuple()[:2])
names = tomllib.load(open("pyproject.toml", "rb"))["project"]["classifiers"]
assert f"Programming Language :: Python :: {version}" in names, f"Python {version} is not in pyproject.toml"
END
        ~/venv/bin/python -VV
        bash --version | head -n 1
        ~/venv/bin/python -m pytest -q -n 2 -m "$1" || {
            [ $? = 1 ] && ~/venv/bin/python -m pytest -q --last-failed --last-failed-no-failures none -m "$1"; }' \
        _ "$MARKS" || code=1
    for user in tester root; do
        echo "the README's first lines, as $user"
        # shellcheck disable=SC2016  # for the inner shell
        inside "$suite" "$user" bash -euc '
            export ALLRANKS_HOME=$(mktemp -d)
            cd /home/tester/allranks
            python3 -m venv "$ALLRANKS_HOME/venv"
            source "$ALLRANKS_HOME/venv/bin/activate"
            lines=$(sed -n "/^\`\`\`bash/,/^\`\`\`/{/^\`\`\`/!p;}; /^\`\`\`text/q" README.md)
            output=$(eval "$lines")
            printf "%s\n" "$output"
            [[ $output == *"rank 2 of 3, meet at 127."* ]]
            allranks server stop' || code=1
    done
    rm -rf --one-file-system "$SYSTEMS/$suite/tmp"/*
    return $code
}

[ "$(id -u)" = 0 ] || leave_out "they need root"
command -v debootstrap >/dev/null || leave_out "apt-get install debootstrap"
unshare --mount true 2>/dev/null || leave_out "no mounts of one's own may be made here"
mirror=$(apt-get indextargets --format '$(LABEL) $(REPO_URI)' 'Created-By: Packages' 2>/dev/null |
    awk '$1 == "Debian" && !seen++ { print $2 }')
[ "$mirror" ] || leave_out "apt has read no mirror of Debian (apt-get update)"

try=try failed=()
[ "$MARKS" != --release ] || try=try_release
for suite in "${SUITES[@]}"; do
    say "$suite"
    make_system "$suite" "$SYSTEMS/$suite" "$mirror" ||
        leave_out "debootstrap could not make $suite, see $SYSTEMS/$suite.log"
    "$try" "$suite" || failed+=("$suite")
done
[ ${#failed[@]} = 0 ] || fail "not everything works on ${failed[*]}" "its output is above"
