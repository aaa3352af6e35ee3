"""The rules of the house that no ready-made linter knows: each a function, file to offences."""

import ast
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from scripts.import_graph import imports, modules, parsed

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src" / "allranks"

ENGINES = {"local", "fake", "slurm", "ray", "kubernetes"}
RAY_IS_A_DISTRIBUTION = (
    "agent/launch/ray.py",
    "agent/launch/start_ranks.py",
    "core/job/compile.py",
    "core/distributions/topology.py",
    "core/distributions/rank_variables.py",
    "spec/job_parts.py",
)
# What Azure ML and SageMaker call the submitter's machine.
LOCAL_IS_A_TARGET = (
    *(
        "compat/azure/v1/compute.py",
        "compat/azure/v1/run_config.py",
        "compat/ssm/run_line.py",
        "compat/ssm/task.py",
    ),
)
ENGINE_WORDS_ALLOWED = {
    # A context of that name: this machine's own server.
    ("cli/examples.py", "local"),
    ("sdk/connection/contexts.py", "local"),
    *((name, "ray") for name in RAY_IS_A_DISTRIBUTION),
    *((name, "local") for name in LOCAL_IS_A_TARGET),
}
# Of a job's own processes: they run a text of the agent's there, or the job's script.
RUNS_IN_RANKS = {"agent/inside/sitecustomize.py", "agent/programs/warm_server.py"}
RUNS_IN_RANKS |= {"agent/programs/allranks_warm/script.py"}
# Reads what torch has pickled in the same process.
UNPICKLES_ITS_OWN = {"agent/inside/allranks_inspect.py"}
# Loads the user's model in a replica, as its own library does.
UNPICKLES_ITS_OWN |= {"agent/inside/allranks_scoring/models.py"}
RUNS_WHAT_IT_READS = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib", "torch"}
# Run by path, or read by Alembic: not imported.
NO_PACKAGES = {
    *(
        SRC / "agent" / "inside",
        SRC / "compat" / "azure" / "inside",
        SRC / "compat" / "ssm" / "inside",
    ),
    SRC / "store" / "migrations" / "versions",
}
IMPURE = {"os", "pathlib", "random", "socket", "subprocess", "time"}


class Source:
    """One file: its name below src/allranks, its text and its tree."""

    def __init__(self, name: str, text: str) -> None:
        self.name, self.text = name, text
        self.lines = text.splitlines()
        self.tree = ast.parse(text)
        self.nodes = [*ast.walk(self.tree)]

    def inner_imports(self) -> set[int]:
        """The lines of the imports inside functions."""
        return {
            node.lineno
            for function in self.nodes
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
            for node in ast.walk(function)
            if isinstance(node, ast.Import | ast.ImportFrom)
        }


Rule = Callable[[Source], list[str]]


def imported(node: ast.AST) -> set[str]:
    if isinstance(node, ast.Import):
        return {alias.name.split(".")[0] for alias in node.names}
    if isinstance(node, ast.ImportFrom) and node.module and not node.level:
        return {node.module.split(".")[0]}
    return set()


def engine_words(source: Source) -> list[str]:
    """No engine's name as a literal outside engines/: ask the engine, do not compare its name."""
    if source.name.startswith("engines/"):
        return []
    return [
        f"{source.name}:{node.lineno}: {node.value!r}"
        for node in source.nodes
        if isinstance(node, ast.Constant)
        and node.value in ENGINES
        and (source.name, node.value) not in ENGINE_WORDS_ALLOWED
    ]


def impure_imports(source: Source) -> list[str]:
    """core/ decides: no clock, no chance, no files, no processes."""
    if not source.name.startswith("core/"):
        return []
    imports = [
        f"{source.name}:{node.lineno}: {module}"
        for node in source.nodes
        if isinstance(node, ast.Import | ast.ImportFrom)
        for module in sorted(imported(node) & IMPURE)
    ]
    return imports + [
        f"{source.name}:{node.lineno}: {node.attr}"
        for node in source.nodes
        if isinstance(node, ast.Attribute)
        and node.attr in ("now", "utcnow", "today")
        and isinstance(node.value, ast.Name)
        and node.value.id in ("datetime", "date")
    ]


def inner_imports(source: Source) -> list[str]:
    """An import inside a function says why (`# lazy: …`); cli/ is lazy as a whole."""
    if source.name.startswith("cli/"):
        return []
    said = lambda n: "# lazy:" in source.lines[n - 1] + source.lines[n - 2]  # noqa: E731
    return [f"{source.name}:{n}" for n in sorted(source.inner_imports()) if not said(n)]


def unpickled(source: Source) -> list[str]:
    """What is read is data: nothing that runs what it reads, and YAML only by a loader of ours."""
    found = []
    for node in source.nodes if source.name not in RUNS_IN_RANKS else ():
        if isinstance(node, ast.Import | ast.ImportFrom) and source.name not in UNPICKLES_ITS_OWN:
            found += [f"{source.name}:{node.lineno}" for _ in imported(node) & RUNS_WHAT_IT_READS]
        elif isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            if called in ("eval", "exec", "compile", "__import__"):
                known = called == "compile" and "job.compile import" in source.text
                found += [] if known else [f"{source.name}:{node.lineno}: {called}"]
            elif called.startswith("yaml.") and called.rpartition(".")[2].endswith(
                ("load", "load_all")
            ):
                found.append(f"{source.name}:{node.lineno}: {called}")
    return found


def drawers(source: Source) -> list[str]:
    """A file that wants `utils` or `helper` in its name wants to be two files."""
    return [source.name] if {"util", "helper"} & set(stems(source.name)) else []


def stems(name: str) -> Iterator[str]:
    for word in name.lower().removesuffix(".py").replace("/", "_").split("_"):
        yield word.removesuffix("s")


def promises(source: Source) -> list[str]:
    """What is left to do stands in an issue, not in the code."""
    words = ("TODO", "FIXME", "XXX")
    return [
        f"{source.name}:{n}"
        for n, line in enumerate(source.lines, 1)
        if any(word in line for word in words)
    ]


def cycle(graph: Mapping[str, set[str]]) -> list[str]:
    """The modules of one import cycle; empty if there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_no_module_imports_itself_through_others(tmp_path: Path) -> None:
    def graph(root: Path) -> dict[str, set[str]]:
        files = {name: file for name, file in modules(root).items() if name.startswith("allranks")}
        return {name: imports(parsed(file), files) - {name} for name, file in files.items()}

    assert cycle(graph(ROOT)) == []
    package = tmp_path / "src" / "allranks"
    package.mkdir(parents=True)
    (package / "a.py").write_text("def f():\n    import allranks.b")
    (package / "b.py").write_text("from allranks import a")
    assert cycle(graph(tmp_path))


def test_a_folder_says_what_it_is_for() -> None:
    folders = {file.parent for file in SRC.rglob("*.py")} - NO_PACKAGES
    assert len(folders) > 40
    silent = [each for each in folders if not ast.get_docstring(parsed(each / "__init__.py"))]
    assert silent == []


# Each rule with a file that breaks it: a rule that cannot fail protects nothing.
BROKEN: dict[Rule, Source] = {
    engine_words: Source("server/app.py", 'if compute.type == "slurm": ...'),
    impure_imports: Source("core/lifecycle/decide.py", "from os.path import join"),
    inner_imports: Source("server/app.py", "def f():\n    import yaml"),
    unpickled: Source("server/app.py", "yaml.load(x)"),
    drawers: Source("server/log_utils.py", ""),
    promises: Source("server/app.py", "pass  # TODO: all of it"),
}


@cache
def sources() -> list[Source]:
    """Every file of the source, parsed once."""
    files = sorted(SRC.rglob("*.py"))
    assert files
    return [Source(f.relative_to(SRC).as_posix(), f.read_text(encoding="utf-8")) for f in files]


def test_the_source_keeps_the_rules() -> None:
    """All in one test: each process that runs a part of them would parse the source."""
    offences = [(rule.__name__, o) for rule in BROKEN for s in sources() for o in rule(s)]
    assert offences == []


@pytest.mark.parametrize("rule", BROKEN, ids=lambda rule: rule.__name__)
def test_the_rule_can_fail(rule: Rule) -> None:
    assert rule(BROKEN[rule])


def test_a_lazy_import_that_says_why_is_allowed() -> None:
    assert not inner_imports(Source("server/app.py", "def f():\n    import yaml  # lazy: 30 ms"))


def test_every_exception_is_still_needed() -> None:
    for name in RUNS_IN_RANKS:
        text = (SRC / name).read_text(encoding="utf-8")
        assert "exec(" in text or "compile(" in text, name
    for name, word in ENGINE_WORDS_ALLOWED:
        assert f'"{word}"' in (SRC / name).read_text(encoding="utf-8"), name


# Words that say less than the field's: a path, a response, a job, expected. Only fewer may come.
VAGUE = {"told", "found", "goal", "asked", "said", "wanted", "known", "each", "given", "seen"}
MOST_VAGUE = 406


def test_vague_names_become_fewer() -> None:
    names = [
        node.arg if isinstance(node, ast.arg) else node.id
        for source in sources()
        for node in source.nodes
        if isinstance(node, ast.arg)
        or (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
    ]
    vague = sum(name in VAGUE for name in names)
    assert vague <= MOST_VAGUE, "name things for what they are: path, response, job, expected …"
    assert vague > MOST_VAGUE - 20, f"lower MOST_VAGUE to {vague}"
