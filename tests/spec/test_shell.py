"""Values in bash commands: exact where they should be, never run anywhere."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from allranks.errors import SpecError
from allranks.spec.shell.expressions import fill_shell

HOSTILE = [
    "a b",
    "it's",
    'say "hi"',
    "$(touch canary)",
    "`touch canary`",
    "; touch canary",
    "\ntouch canary\n",
    "' ; touch canary ; '",
    '" ; touch canary ; "',
    "\\",
    "\\'; touch canary #",
    "x\\",
    ") ; touch canary ; (",
    "} ; touch canary ; {",
    "&& touch canary",
    "| touch canary",
    "> canary",
    "a[$(touch canary)]",
    "EOF\ntouch canary",
    "*",
    "~",
    "-n",
    "--",
    "!x",
    "#x",
    "ünï→ço dé 🎉",
    "$HOME ${HOME} $'x' $\"y\"",
    "<(touch canary)",
    "{a,b}",
    "\t",
    "case",
    "",
]
# What people pass, and what a shell may take for something else.
LITERALS = [
    '{"lr": 0.1, "name": "a b"}',
    r"^img_\d+\.(png|jpg)$",
    r"C:\data\new",
    "['a','b']",
    *('say "hi"', " a ", "a\nb\tc", "a  b", "\n", "  ", "a\r\n", "a\u00a0b", "x" * 4_999),
    *("if", "x=1", "1", "9", "a*", "?b", "[ab]", "~root", "--x 1 -y", "}", "a,b", "'", "\v a\f"),
]
# Each prints exactly the value, between NULs.
EXACT = [
    "printf '%s\\0' \"${{inputs.x}}\"",
    "printf '%s\\0' '${{inputs.x}}'",
    "printf '%s\\0' $'${{inputs.x}}'",
    "printf '%s\\0' \"$(printf '%s.' \"${{inputs.x}}\")\" | sed -z 's/\\.$//'",
    "printf '%s\\0' \"`printf '%s.' '${{inputs.x}}'`\" | sed -z 's/\\.$//'",
    "printf '%s\\0' `: don\\'t` \"${{inputs.x}}\" # it's",
    ": it\\'s \\\"; # don't\nprintf '%s\\0' \"${{inputs.x}}\"",
    "if [[ a == a ]]; then (printf '%s\\0' '${{inputs.x}}'); fi",
    "case b in a) :;; b) printf '%s\\0' \"${{inputs.x}}\";; esac",
    "y=\"$(case a in a) echo \\';; esac)\"; printf '%s\\0' '${{inputs.x}}'",
    'y="$(echo case)"; printf \'%s\\0\' "${{inputs.x}}"',
    "y=${z:-it\\'s}; printf '%s\\0' \"${{inputs.x}}\"",
    "y=$((1 << 2)); ((y > 3)) && printf '%s\\0' \"${{inputs.x}}\"",
    "cat <<'EOF' >/dev/null\nit's $( \"\nEOF\nprintf '%s\\0' \"${{inputs.x}}\"",
    "cat <<-EOF >/dev/null\n\tit's \"\n\tEOF\nprintf '%s\\0' '${{inputs.x}}'",
    "cat <<<EOF >/dev/null\nprintf '%s\\0' '${{inputs.x}}'",
    "y=a#'; z=${#y}; printf '%s\\0' '${{inputs.x}}'".replace("#'", "#\\'"),
    'f() { printf \'%s\\0\' "$@"; }\nf \\\n  "${{inputs.x}}"',
]
# Wherever the value stands: it may come out changed, or be refused; it is never run.
ANYWHERE = [
    *EXACT,
    "echo ${{inputs.x}}",
    "echo --x=${{inputs.x}}",
    "echo \\${{inputs.x}}",
    'echo "\\${{inputs.x}}"',
    'echo "$${{inputs.x}}"',
    "echo $${{inputs.x}}",
    "echo $'\\${{inputs.x}}'",
    "echo `echo ${{inputs.x}}`",
    'echo "`echo \\"${{inputs.x}}\\"`"',
    "echo `echo \\`echo ${{inputs.x}}\\``",
    "echo # ${{inputs.x}}\necho",
    "echo $((${{inputs.x}} + 1))",
    'echo $(( "${{inputs.x}}" ))',
    'echo "$[${{inputs.x}}]"',
    "((${{inputs.x}})) || :",
    "[[ ${{inputs.x}} -eq 1 ]] || :",
    '[[ ! ( "${{inputs.x}}" -eq 1 ) ]] || :',
    'a=(1 2); echo "${a[${{inputs.x}}]}" ${a["${{inputs.x}}"]}',
    'a[${{inputs.x}}]=1; a["${{inputs.x}}"]=1',
    'echo ${y:-${{inputs.x}}} "${y:-${{inputs.x}}}" "${y:-"${{inputs.x}}"}"',
    "cat <<EOF\n${{inputs.x}}\nEOF\necho",
    "cat <<'EOF'\n${{inputs.x}}\nEOF\necho",
    "cat <<-EOF\n\t${{inputs.x}} $(echo ${{inputs.x}})\n\tEOF\necho",
    "cat <<EOF $(echo\necho) ${{inputs.x}}\n${{inputs.x}}\nEOF\n",
    "cat <<${{inputs.x}}\nx\n",
    'echo "$\\\n(echo ${{inputs.x}})"',
    "echo <(echo ${{inputs.x}}) >(echo ${{inputs.x}})",
    'echo >& ${{inputs.x}}; echo >&"${{inputs.x}}"; echo >&a${{inputs.x}}',
    "a=([${{inputs.x}}]=1 b); export ${{inputs.x}} x=${{inputs.x}}",
    "echo i${{inputs.x}}f ${{inputs.x}}#${{inputs.x}}",
    "x=1 echo ${{inputs.x}}x; >a echo ${{inputs.x}}x",
    "[[ a == ${{inputs.x}} || a =~ ${{inputs.x}} ]] || echo '${{inputs.x}}'",
    "cat <<'a b'\n${{inputs.x}} '${{inputs.x}}'\na b\necho '${{inputs.x}}'",
    "echo \"$(echo case) ${{inputs.x}} $(case a in (a) echo ')' ;; esac) ${{inputs.x}}\"",
    "echo 'unclosed ${{inputs.x}}",
    "x=${{inputs.x}} y='${{inputs.x}}' true",
    'for i in ${{inputs.x}}; do echo "$i"; done',
    "echo $(\n# it's\necho ${{inputs.x}}) '${{inputs.x}}'",
    "echo \"${y#'}'}${{inputs.x}}\" '${{inputs.x}}'",
    "echo ${{inputs.x}}${{inputs.x}}'${{inputs.x}}'\"${{inputs.x}}\"",
    'echo "${{inputs.x}}(echo ${{inputs.x}})" "$${{inputs.x}}(echo ${{inputs.x}})"',
    "echo $((echo a) | cat; echo ${{inputs.x}})",
    "y=\"${z:-it's}\"; echo '${{inputs.x}}'",
    "echo ) ${{inputs.x}}",
    "[[ a =~ ^(a|')$ ]] ; echo ${{inputs.x}} '",
]

# Each prints the same as with a variable in place of the value, without globbing.
UNQUOTED = [
    "p ${{inputs.x}}",
    "p a ${{inputs.x}} b; p ${{inputs.x}}; (p ${{inputs.x}})",
    "p --x=${{inputs.x}} x=${{inputs.x}} --x=${{inputs.x}}.txt ./${{inputs.x}}",
    "p a${{inputs.x}}b ${{inputs.x}}b a${{inputs.x}}",
    "p ${{inputs.x}}${{inputs.x}} ${{inputs.x}}-${{inputs.x}}",
    'p ""${{inputs.x}} ${{inputs.x}}\'\' "a b"${{inputs.x}}\'c d\'"${{inputs.x}}"',
    'p "$(p ${{inputs.x}})" "`p a ${{inputs.x}}`" "${y:-$(p ${{inputs.x}})}"',
    "p {a,${{inputs.x}}} ~${{inputs.x}} ${{inputs.x}}{c,d}",
    "p ${{inputs.x}}#c; p #${{inputs.x}}\np ${{inputs.x}} # c",
    'X=${{inputs.x}} Y=a${{inputs.x}} Z=${{inputs.x}}; p "$X" "$Y" "$Z"',
    'X=1 Y=${{inputs.x}} bash -c \'printf "<%s>" "$Y"\'',
    'X=a:~${{inputs.x}}; p "$X"; X+=${{inputs.x}}; p "$X"',
    '>/dev/null X=${{inputs.x}}; p "$X"',
    'f() { local X=${{inputs.x}}; p "$X"; }; f',
    'export X=a,${{inputs.x}}; p "$X"',
    'a=(${{inputs.x}} --y=${{inputs.x}} z=${{inputs.x}}\n${{inputs.x}}); p "${a[@]}"',
    'a=([99]=${{inputs.x}}); p "${a[@]}"',
    'set -- ${{inputs.x}}; p $# "$@"',
    'for i in ${{inputs.x}}; do p "$i"; done; for i in a ${{inputs.x}}\ndo p "$i"; done',
    "[[ -z ${{inputs.x}} ]] && p empty; [[ -n a${{inputs.x}} ]] && p full",
    "cat <<< ${{inputs.x}}; cat <<EOF\n${{inputs.x}}\nEOF\n",
    "case ${{inputs.x}} in 'a b') p both;; *) p else;; esac",
    "case a in a) :;; esac; p a ${{inputs.x}} --x=${{inputs.x}} b ${{inputs.x}}",
    "if [ a = a ]; then p ${{inputs.x}}; fi && ! p ${{inputs.x}} || p ${{inputs.x}} | cat",
    "p ${{inputs.x}}>&1; p a ${{inputs.x}} \\\n  b ${{inputs.x}}",
]

fuzz = st.lists(
    st.one_of(
        st.sampled_from(HOSTILE), st.text(max_size=8), st.sampled_from([*"'\"`$\\;#()&|\n "])
    ),
    max_size=5,
).map("".join)
bash_text = fuzz.filter(lambda s: "\0" not in s and s.isprintable() | ("\n" in s)).filter(
    lambda s: not any("\ud800" <= c <= "\udfff" for c in s)
)


def run(commands: list[str], where: Path) -> list[bytes]:
    """What each command prints, one shell for all: `eval` reads them as `bash -c` would."""
    each = 'for c in "$@"; do (eval "$c"); printf "\\0\\1\\0"; done'
    done = subprocess.run(
        ["bash", "-c", each, "bash", *commands],
        cwd=where,
        capture_output=True,
        stdin=subprocess.DEVNULL,
        timeout=60,
    )
    return done.stdout.split(b"\0\1\0")[:-1]


def filled(template: str, value: str, *, path: bool) -> list[str]:
    """The command, or nothing when the value is refused there."""
    try:
        return [fill_shell(template, {"inputs.x": value}, ["inputs.x"] if path else [])]
    except SpecError:
        return []


def harmless(commands: list[str], where: Path) -> list[bytes]:
    printed = run(commands, where)
    if (where / "canary").exists():
        for command in commands:
            (where / "canary").unlink(missing_ok=True)
            run([command], where)
            assert not (where / "canary").exists(), command
    return printed


@pytest.mark.parametrize("template", EXACT)
def test_a_quoted_value_arrives_exactly(template: str, tmp_path: Path) -> None:
    commands = [command for value in HOSTILE for command in filled(template, value, path=False)]
    printed = harmless(commands, tmp_path)
    assert [text.rstrip(b"\0").decode() for text in printed] == HOSTILE


@pytest.mark.parametrize("template", ANYWHERE)
@pytest.mark.medium
def test_a_value_is_never_run(template: str, tmp_path: Path) -> None:
    cases = [(value, path) for value in HOSTILE for path in (True, False)]
    harmless([c for value, path in cases for c in filled(template, value, path=path)], tmp_path)


QUICK = settings(max_examples=15, suppress_health_check=list(HealthCheck))


@QUICK
@given(values=st.lists(bash_text, min_size=8, max_size=20), template=st.sampled_from(ANYWHERE))
@pytest.mark.medium
def test_no_value_is_ever_run(values: list[str], template: str, tmp_path: Path) -> None:
    harmless([c for value in values for c in filled(template, value, path=False)], tmp_path)


@QUICK
@given(values=st.lists(bash_text, min_size=8, max_size=20))
def test_every_value_is_exact_in_every_quoting(values: list[str], tmp_path: Path) -> None:
    template = "printf '%s\\0' ${{inputs.x}} \"${{inputs.x}}\" '${{inputs.x}}'"
    commands = [command for value in values for command in filled(template, value, path=True)]
    assert harmless(commands, tmp_path) == [f"{v}\0".encode() * 3 for v in values]


def expect_like_a_variable(template: str, values: list[str], where: Path) -> None:
    """The filled commands glob where bash would, the variable does not."""
    prints = "p() { printf '<%s>' \"$@\"; }\n"
    accepted = [(value, filled(template, value, path=False)) for value in values]
    plain = template.replace("${{inputs.x}}", "${x}")
    with_value = [prints + command for _, commands in accepted for command in commands]
    with_variable = [
        f"set -f; x={shlex.quote(value)}; {prints}{plain}"
        for value, commands in accepted
        if commands
    ]
    assert harmless(with_value, where) == run(with_variable, where)


@pytest.mark.parametrize("template", UNQUOTED)
def test_an_unquoted_value_is_an_unquoted_variable(template: str, tmp_path: Path) -> None:
    (tmp_path / "ab").touch()
    expect_like_a_variable(template, [*HOSTILE, *LITERALS], tmp_path)


@QUICK
@given(values=st.lists(bash_text, min_size=8, max_size=20), template=st.sampled_from(UNQUOTED))
@pytest.mark.medium
def test_any_unquoted_value_is_an_unquoted_variable(
    values: list[str], template: str, tmp_path: Path
) -> None:
    expect_like_a_variable(template, values, tmp_path)


SOUP = [
    *["${{inputs.x}}", '"', "'", "`", "$(", ")", "(", "\\", " ", "\n", "#", "${y:-", "}"],
    *["echo ", "case a in ", " esac ", ";;", "<<EOF", "EOF\n", "[[ ", " ]]", "$((", "))"],
    *["$", "$'", "a", "if ", "; ", "{ ", "&", "$[", "<", "x=", "${y#", '"${{inputs.x}}"'],
]
soup = st.lists(st.sampled_from(SOUP), min_size=2, max_size=14).map("".join)
# Where a command's own name belongs, a literal names the command: that much is asked for.
NO_COMMANDS = [v for v in HOSTILE if "canary" in v and not v.strip().startswith("touch")]


@QUICK
@given(templates=st.lists(soup, min_size=20, max_size=30), value=st.sampled_from(NO_COMMANDS))
def test_no_value_is_run_in_any_soup(templates: list[str], value: str, tmp_path: Path) -> None:
    harmless([c for t in templates for c in filled(t, value, path=False)], tmp_path)


@pytest.mark.parametrize(
    ("template", "value", "path", "expected"),
    [
        ("a ${{inputs.x}}", "b c", False, "a b c"),
        ("a ${{inputs.x}}", "b {c d} $e", False, "a b '{c' 'd}' '$e'"),
        ("a ${{inputs.x}}", '{"lr":0.1}', False, """a '{"lr":0.1}'"""),
        ("a ${{inputs.x}}", "k=v", False, "a 'k=v'"),
        ("a ${{inputs.x}}", "it's", False, """a 'it'"'"'s'"""),
        ("a ${{inputs.x}}", "b c", True, "a 'b c'"),
        ("a ${{inputs.x}}", "", False, "a "),
        ("a ${{inputs.x}}", "", True, "a ''"),
        ("a --x=${{inputs.x}}", "b c", False, "a --x=b c"),
        ("a x=${{inputs.x}}", "b  $c", False, "a x=${?+b  '$c'}"),
        ("x=${{inputs.x}} a", "b c", False, "x='b c' a"),
        ("a > ${{inputs.x}}", "b c", False, "a > 'b c'"),
        ("a ${{inputs.x}}.txt", "b", False, "a b.txt"),
        ("a ${{inputs.x}}.txt", "b c", False, "a ${?+b c}.txt"),
        ("i${{inputs.x}}f a", "", False, "i${?+}f a"),
        ("a ${{inputs.x}}>b", "2", False, "a '2'>b"),
        ("[[ a == ${{inputs.x}} ]]", "a*", False, "[[ a == $(printf %s 'a*') ]]"),
        ("a --x=${{ inputs.x }}", "/data/x_1.csv", True, "a --x=/data/x_1.csv"),
        ('a "${{inputs.x}}"', 'b\\"$`', False, 'a "b\\\\\\"\\$\\`"'),
        ("a '${{inputs.x}}'", "it's", False, "a 'it'\\''s'"),
        ("a $[[--x ${{inputs.x}}]]", "1", False, "a --x 1"),
        ("a $[[--y ${{inputs.y}}]] b", "1", False, "a  b"),
        ("grep '$[[:space:]]' ${{inputs.x}}", "f", True, "grep '$[[:space:]]' f"),
        ("# ${{inputs.x}}", "a\nb", False, "# $'a\\x0ab'"),
        ("cat <<E\n${{inputs.x}}\nE", 'a "$b"', False, 'cat <<E\na "\\$b"\nE'),
        ("${{inputs.x}}", "if", False, "'if'"),
    ],
)
def test_how_values_are_written(template: str, value: str, path: bool, expected: str) -> None:
    assert fill_shell(template, {"inputs.x": value}, ["inputs.x"] if path else []) == expected


@pytest.mark.parametrize(
    ("template", "value", "said"),
    [
        ("echo $((${{inputs.x}}))", "a[$(id)]", "arithmetic"),
        ("echo ${y:-${{inputs.x}}}", "$(id)", "plain word"),
        ("[[ ${{inputs.x}} -eq 1 ]]", "a[$(id)]", "[[ … ]]"),
        ("cat <<EOF\n${{inputs.x}}\nEOF", "EOF", "would end the here-document"),
        ("cat <<EOF\n${{inputs.x}}\n", "a b", "not terminated"),
        ("cat <<${{inputs.x}}", "a", "delimiter"),
        ("echo ${{inputs.x}}", "a\0b", "NUL"),
    ],
)
def test_what_is_refused(template: str, value: str, said: str) -> None:
    with pytest.raises(SpecError) as caught:
        fill_shell(template, {"inputs.x": value}, [])
    assert said in caught.value.message
    assert "inputs.x" in caught.value.message
    assert caught.value.where == "command"
    assert "variable" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("command", "value", "expected"),
    [
        ("--x ${{inputs.x}}", "hello world", ["--x", "hello", "world"]),
        ('--x "${{inputs.x}}"', "hello world", ["--x", "hello world"]),
        ("--x ${{inputs.x}}", '{"lr":0.1}', ["--x", '{"lr":0.1}']),
        ("--x ${{inputs.x}}", '{"lr": 0.1}', ["--x", '{"lr":', "0.1}"]),
        ("--x=${{inputs.x}}", r"^img_\d+\.", [r"--x=^img_\d+\."]),
        ('${{inputs.x}} "${{inputs.x}}"', "*.png", ["*.png", "*.png"]),
        ('--x ${{inputs.x}} --y "${{inputs.x}}"', "", ["--x", "--y", ""]),
    ],
)
def test_the_examples_of_the_page(
    command: str, value: str, expected: list[str], tmp_path: Path
) -> None:
    page = Path(__file__).parents[2].joinpath("docs/how-to/azureml.md").read_text()
    assert f"| `{value}` | `{command}` |" in page or not value
    (tmp_path / "a.png").touch()
    (printed,) = run(filled(f"printf '%s\\0' {command}", value, path=False), tmp_path)
    assert printed.decode().split("\0")[:-1] == expected


@pytest.mark.parametrize(
    ("test", "value", "expected"),
    [
        ("img_1.png == ${{inputs.x}}", "img_*", b"yes"),
        ('img_1.png == "${{inputs.x}}"', "img_*", b""),
        ("img_1.png =~ ${{inputs.x}}", r"^img_[0-9]+\.(png|jpg)$", b"yes"),
        ("img_1.png =~ ${{inputs.x}} && -n it\\'s", "^img a|b$", b""),
        ("a.c != ${{inputs.x}}", "a?c", b""),
        ("${{inputs.x}} == -f", "-f", b"yes"),
    ],
)
def test_a_value_is_a_pattern_in_a_test(
    test: str, value: str, expected: bytes, tmp_path: Path
) -> None:
    (printed,) = run(filled(f"[[ {test} ]] && printf yes", value, path=False), tmp_path)
    assert printed == expected


def test_endless_nesting_is_refused_in_words() -> None:
    with pytest.raises(SpecError, match="too deeply"):
        fill_shell("$(" * 5000 + "${{inputs.x}}", {"inputs.x": "a"}, [])


def test_a_command_without_values_stays_as_it_is() -> None:
    command = "a `b \\`c\\`` \"$(case x in y) ;; esac)\" <<E 'z'\n\\$x\nE\n[[ ${a[1]} ]] # it's"
    assert fill_shell(command, {}, []) == command
