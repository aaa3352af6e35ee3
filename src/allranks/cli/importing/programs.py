"""Python programs, notebooks and shell scripts of a folder: which names and lines are there."""

from __future__ import annotations

import ast
import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from allranks.cli.az.verbs import read as read_az
from allranks.cli.importing import downloads
from allranks.cli.importing.finding import (
    NO,
    NOT_KNOWN,
    PARTLY,
    YES,
    Finding,
    mentions,
    prefix_of,
    read_text,
)
from allranks.cli.importing.judge import ANSWERED, PIN, IsRegistered, Judge
from allranks.compat.azure.absent import INSTEAD
from allranks.compat.azure.names import ABSENT, NAMES, PACKAGES
from allranks.compat.ssm.parser import read as read_ssm
from allranks.errors import AllranksError

_OURS = ("azureml", "azure.ai.ml", "simple_sagemaker")
_SAGEMAKER = ("sagemaker", "boto3")
_DOWNLOADERS = {"wget", "curl", "aria2c"}
_MOST_FILES = 20
# The kernel of Jupyter's own that every installation has.
_KERNEL = "python3"
# It may have an apostrophe, which is no quote.
_COMMENT = re.compile(r"(?m)(?:^|(?<=\s))#[^\n\"]*$")
_ASSIGNED = re.compile(r"(?m)^\s*(?:export\s+)?(\w+)=[\"']?([^\"'\n]*)[\"']?\s*(?:#.*)?$")
# A word that is only a variable, or all further arguments: `$@`, `${@:4}`.
_VARIABLE = re.compile(r"\$\{?(\w+|[@*])(?::\d+)?\}?")
# Before a command: keywords of the shell, assignments, and programs that start it.
_BEFORE = re.compile(r"(?:if|then|else|do|while|until|!|\{|time|exec|nohup|sudo|\w+=\S*|.*\$)")
# Lines of a notebook that IPython or a shell runs, but for those that only show something.
_MAGIC = re.compile(
    r"\s*(?:!(?!\s*(?:ls|cat|pwd|echo|mkdir)\b)|%(?:pip|conda|run|cd|sh|bash)\b"
    r"|%%(?!time|writefile|capture))"
)


def look_at_program(
    file: Path, name: str, is_registered: IsRegistered = lambda *_: False
) -> Finding | None:
    """What is found of a .py file or a notebook; None if it imports nothing of the kind.
    ``is_registered``: as of `Judge`."""
    kind = "notebook" if file.suffix == ".ipynb" else "program"
    try:
        sources = list(_sources(file))
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        if not mentions(file, "azure.ai.ml", "azureml"):
            return None
        return Finding(name, kind, NO, problems=((f"it cannot be read: {error}", ""),))
    imports = {each for source in sources for each in _imports(source)}
    modules = {module for module, _ in imports}
    if not any(one.startswith(_OURS) or one.split(".")[0] in _SAGEMAKER for one in modules):
        return None
    data: tuple[str, ...] = ()
    judgements: list[tuple[str, str]] = []
    try:
        judged = Judge(ast.parse("\n".join(sources)), file.parent, is_registered)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        doubts, unused = [f"it cannot be parsed: {error}"], set[tuple[str, str]]()
    else:
        judgements = [(problem, _instead_of(problem)) for problem in judged.problems]
        doubts, data, unused = [*judged.doubts], tuple(judged.data), judged.unused
    problems: list[tuple[str, str]] = []
    supported = 0
    for module, attribute in sorted(imports):
        if module.partition(".")[0] in _SAGEMAKER:
            problems.append((f"{module} speaks to AWS", "use `allranks ssm`, or a job file"))
            continue
        if not module.startswith(_OURS):
            continue
        is_unused = (module, attribute) in unused and attribute in ABSENT.get(module, {})
        if _is_there(module, attribute) or is_unused:
            supported += 1
            continue
        hint = ABSENT.get(module, {}).get(attribute) or "see the page of Azure's names"
        problems.append((f"{module}{attribute and '.'}{attribute} is not there", hint))
    problems += judgements
    if any(downloads.downloads(source) for source in sources):
        doubts.append("what it downloads")
    if kind == "notebook":
        doubts += [f"whether `{line}` works" for line in _magics(file)]
    runs = YES if not doubts else NOT_KNOWN
    if problems:
        runs = PARTLY if supported else NO
    how = "allranks python"
    if kind == "notebook":
        how += " -m nbconvert --to notebook --execute"
        how += "" if _kernel(file) == _KERNEL else f" --ExecutePreprocessor.kernel_name={_KERNEL}"
    inside = {module for module, each in imports if each == "Run"} and supported == 1
    notes = ["logs to its job" if inside else f"{how} {name}"] if supported else []
    if runs == NOT_KNOWN:
        notes.insert(0, f"not tried: {'; '.join(doubts)}")
    return Finding(name, kind, runs, tuple(notes), tuple(problems), (), data)


def _kernel(file: Path) -> str:
    """The kernel that a notebook asks for: its author's may not be here."""
    metadata = json.loads(read_text(file)).get("metadata") or {}
    return str((metadata.get("kernelspec") or {}).get("name") or _KERNEL)


def _instead_of(problem: str) -> str:
    """What to do instead of a member that is not there."""
    member = problem.partition(" ")[0].rpartition(".")[2]
    return INSTEAD.get(member, "see docs/how-to/python.md")


def _magics(file: Path) -> Iterator[str]:
    """The lines of a notebook for IPython or a shell, but for those that show something."""
    for cell in json.loads(read_text(file))["cells"]:
        if cell["cell_type"] == "code":
            for line in "".join(cell["source"]).splitlines():
                if _MAGIC.match(line):
                    yield line.strip()


def _sources(file: Path) -> Iterator[str]:
    text = read_text(file)
    if file.suffix != ".ipynb":
        yield text
        return
    for cell in json.loads(text)["cells"]:
        if cell["cell_type"] == "code":
            lines = "".join(cell["source"]).splitlines()
            if lines and re.match(r"%%(?!time|capture)", lines[0]):
                continue  # a file, or another language
            yield "\n".join(line for line in lines if not line.lstrip().startswith(("%", "!")))


def _imports(source: str) -> Iterator[tuple[str, str]]:
    """Module and name of each import."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from ((node.module, alias.name) for alias in node.names)


def _is_there(module: str, attribute: str) -> bool:
    if module not in NAMES and module not in PACKAGES:
        return False
    names = NAMES.get(module, {})
    return attribute in ("", "*") or attribute in names or f"{module}.{attribute}" in NAMES


def look_at_script(file: Path, name: str) -> Finding | None:
    """What is found of a shell script; None if it has no line of `az ml` or `ssm`."""
    try:
        text = read_text(file)
    except OSError:
        return None
    problems: list[tuple[str, str]] = []
    doubts: list[str] = []
    data: list[str] = []
    supported, kinds = 0, set()
    variables = dict(_ASSIGNED.findall(text))
    for program, written in _commands(text):
        kinds.add(program)
        words = list(_expanded(written, variables))
        try:
            read_ssm(words) if program == "ssm" else read_az(words)
            supported += 1
            addresses = [word for word in words if prefix_of(word)]
            data += addresses
            doubts += [f"whether {prefix_of(address)} can be read" for address in addresses]
            doubts += [f"whether {pin} installs" for word in words for pin in PIN.findall(word)]
            doubts += _doubts_of_task(words, file.parent) if program == "ssm" else ()
        except AllranksError as error:
            if any("$" in word or "`" in word for word in words):
                # The shell may make something else of it.
                doubts.append(f"{program} {' '.join(words[:3])}: {error.message}")
            else:
                line = f"{program} {' '.join(words[:3])}: {error.message}"
                problems.append((line, error.hint or ""))
        except SystemExit:
            supported += 1
    if not kinds:
        return None
    plain = _COMMENT.sub("", text)
    downloads = {prefix_of(word) for words in _split(plain) for word in _fetched(words)}
    doubts += [f"whether {address} can be read" for address in sorted(downloads)]
    runs = YES if not doubts else NOT_KNOWN
    if problems:
        runs = PARTLY if supported else NO
    notes = tuple(
        f'{kind}: a file `{kind}` on PATH with exec allranks {kind} "$@"' for kind in sorted(kinds)
    )
    if runs == NOT_KNOWN:
        notes = (f"not tried: {'; '.join(dict.fromkeys(doubts))}", *notes)
    return Finding(name, "script", runs, notes, tuple(problems), (), tuple(data))


def _fetched(words: Sequence[str]) -> list[str]:
    """The addresses that a command of a script downloads from."""
    program = next((word for word in words if not _BEFORE.fullmatch(word)), "")
    addresses = [word for word in words if prefix_of(word)]
    return addresses if set(words) & _DOWNLOADERS or program in _DOWNLOADERS else []


def _doubts_of_task(words: Sequence[str], folder: Path) -> Iterator[str]:
    """What an `ssm` line's Dockerfile installs, and what its script imports from this Python."""
    options, _, _ = read_ssm(words)
    dockerfile = getattr(options, "docker_file_path_or_content", None)
    if dockerfile:
        yield from _pin_doubts(_below(folder, dockerfile), "Dockerfile")
    entry = getattr(options, "entry_point", None) or getattr(options, "code", None)
    if not entry:
        return
    source = _below(folder, getattr(options, "source_dir", "") or "")
    script = _below(source, entry)
    yield from _pin_doubts(script.with_name("requirements.txt"))
    yield from downloads.doubts(script)
    if dockerfile or options.framework:
        return
    beside = [source, script.parent, *(_below(folder, path) for path in options.dependencies)]
    try:
        imports = {module for module, _ in _imports(read_text(script))}
    except OSError:
        return
    for top in sorted({module.partition(".")[0] for module in imports} - {"torch"}):
        own = any((path / top).exists() or (path / f"{top}.py").exists() for path in beside)
        if not own and top not in ANSWERED and find_spec(top) is None:
            yield f"the module {top} is not in this Python"


def _pin_doubts(place: Path, *names: str) -> Iterator[str]:
    """Of a Dockerfile, or of files with one of the names in a folder and below it."""
    files = [place] if not place.is_dir() else []
    files += [file for name in names for file in downloads.files_below(place, name)]
    for file in files[:_MOST_FILES]:
        if file.is_file():
            for pin in PIN.findall(read_text(file)):
                yield f"whether {pin} installs"


def _below(folder: Path, path: str) -> Path:
    """A path of a script, which names its own folder by a variable or goes there first."""
    return folder / re.sub(r"^\$\{?\w+\}?/", "", path)


def _expanded(words: Sequence[str], variables: Mapping[str, str]) -> Iterator[str]:
    """The words as the shell splits them where nothing else is given: without the script's further
    arguments, and with the script's own values of variables."""
    for word in words:
        if (name := _VARIABLE.fullmatch(word)) is None:
            yield word
        elif name[1] in variables and "$" not in variables[name[1]]:
            yield from variables[name[1]].split()
        elif name[1] not in ("@", "*"):
            yield word


def _commands(text: str) -> Iterator[tuple[str, list[str]]]:
    """The words of each `az ml` and `ssm` command of a shell script. Quoted operators are text."""
    for words in _split(_COMMENT.sub("", text)):
        for word in words:
            if "$(" in word:  # between double quotes
                yield from _commands(word.partition("$(")[2])
        while words and _BEFORE.fullmatch(words[0]):
            words = words[1:]
        if words[:2] == ["az", "ml"]:
            yield "az", words[2:]
        elif words[:1] == ["ssm"]:
            yield "ssm", words[1:]


def _split(text: str) -> Iterator[list[str]]:
    """The words of each simple command, without redirections."""
    lexer = shlex.shlex(text.replace("\\\n", " "), posix=True, punctuation_chars="();<>|&`\n")
    lexer.whitespace = " \t\r"
    lexer.whitespace_split = True
    lexer.commenters = ""
    words: list[str] = []
    skip = ""
    try:
        for word in lexer:
            if set(word) <= set("();<>|&`\n"):
                if set(word) & set("<>"):
                    # `2>file`: the number and the file belong to the shell.
                    words = words[:-1] if words and words[-1].isdecimal() else words
                    skip = "file"
                    continue
                if skip != "comment" or "\n" in word:
                    yield words
                    words, skip = [], ""
            elif skip == "file":
                skip = ""
            elif word.startswith("#") or skip == "comment":
                skip = "comment"
            else:
                words.append(word)
    except ValueError:  # an apostrophe in a comment or a here-document
        if "\n" not in text.strip():
            yield text.split()
            return
        for line in text.replace("\\\n", " ").splitlines():
            yield from _split(line)
        return
    yield words
