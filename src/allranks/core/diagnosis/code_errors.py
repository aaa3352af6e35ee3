"""Exceptions about Python versions, imports, native libraries and checkpoints.

Order matters: narrower patterns come first.
"""

from __future__ import annotations

from allranks.core.diagnosis.causes import Cause
from allranks.core.diagnosis.error_pattern import ErrorPattern

_RANKS = "RANK|LOCAL_RANK|WORLD_SIZE|LOCAL_WORLD_SIZE|MASTER_ADDR|MASTER_PORT"
# JOB stands for the job's name.
_AS_PYTORCH = (
    "also for one rank: allranks job restart JOB --set distribution.type=pytorch runs it like that"
)
_NOT_PYTORCH = (
    "`-d pytorch` (in a job file: `distribution: {{type: pytorch}}`) sets {0}, " + _AS_PYTORCH
)
_NO_MLFLOW = (
    "jobs get this variable from a server that has MLflow: install `allranks[mlflow]` for it, and "
    "restart it (allranks server restart)"
)
CODE = (
    ErrorPattern(
        Cause.MODULE_MISSING,
        r"ModuleNotFoundError: No module named '(distutils|imp|asyncore|asynchat|smtpd)'",
        "Python 3.12 removed `{0}`: use Python 3.11 (`python=3.11` in the environment), or install "
        "setuptools for distutils",
    ),
    ErrorPattern(
        Cause.WRONG_PYTHON,
        r"ModuleNotFoundError: No module named '(?:tomllib|zoneinfo|graphlib|annotationlib)'$|"
        r"ImportError: cannot import name '(?:Self|Annotated|Literal|Protocol|TypedDict|Final|"
        r"ParamSpec|TypeAlias|TypeGuard|override|Never|assert_never|Unpack|Required|NotRequired|"
        r"dataclass_transform|TypeIs)' from 'typing'|"
        r"(?:ImportError: cannot import name|AttributeError: module 'collections' has no attribute)"
        r" '(?:Mapping|MutableMapping|Sequence|MutableSequence|Iterable|Iterator|Callable|Hashable|"
        r"MutableSet)'(?: from 'collections'|$)|"
        r"ImportError: cannot import name '(?:StrEnum|pairwise|batched|cache|cached_property|"
        r"nullcontext|aclosing|UTC|TaskGroup)' from '(?:enum|itertools|functools|contextlib|"
        r"asyncio|datetime)'|"
        r"AttributeError: module '(?:itertools|functools|asyncio|inspect)' has no attribute '(?:"
        r"pairwise|batched|cache|cached_property|run|TaskGroup|timeout|coroutine|getargspec)'|"
        r"TypeError: unsupported operand type\(s\) for \|: '(?:type|_GenericAlias|ABCMeta|_Union"
        r"GenericAlias)' and '(?:NoneType|type|_GenericAlias)'|"
        r"TypeError: dataclass\(\) got an unexpected keyword argument '(?:slots|kw_only)|"
        r"SyntaxError: (?:Missing parentheses in call to 'print'|Non-ASCII|future feature)",
    ),
    ErrorPattern(
        Cause.WRONG_PYTHON,
        r"TypeError: '(?:type|ABCMeta)' object is not subscriptable",
        source=r".*\b(?:list|dict|tuple|set|frozenset|type|Mapping|Sequence|Iterator)\[[\w\"']",
    ),
    # Before these keywords existed, no valid line began like this.
    ErrorPattern(
        Cause.WRONG_PYTHON,
        r"SyntaxError: invalid syntax",
        source=r"(?:match\b[^=]*:|except ?\* ?\w.*:|type [A-Za-z_]\w* ?= ?\w.*)$",
    ),
    ErrorPattern(Cause.SYNTAX_ERROR, r"(?:SyntaxError|IndentationError|TabError)\b"),
    ErrorPattern(
        Cause.LIBRARY_MISSING,
        r"(?:ImportError|OSError): (\S+): cannot open shared object file",
        "`{0}` is missing on the node: install its package, load its module, or add its folder to "
        "LD_LIBRARY_PATH",
    ),
    ErrorPattern(
        Cause.LIBRARY_MISSING,
        r"(?:ImportError|OSError): [^\n]*version [`']?(\w+_[\d.]+)'? not found",
        "the node's system library has no {0}: the package was built on a newer system; install a "
        "build for this one, or bring a newer library (conda, a container)",
    ),
    ErrorPattern(
        Cause.IMPORT_FAILED,
        r"ImportError: [^\n]*undefined symbol: ",
        "it was built for another version of one of its dependencies: reinstall it for this one",
    ),
    ErrorPattern(
        Cause.IMPORT_FAILED,
        r"ImportError: cannot import name '\w+' from partially initialized module '([\w.]+)'",
        "two modules import each other, or one of your files has the name of the package `{0}`",
    ),
    ErrorPattern(Cause.IMPORT_FAILED, r"ImportError: cannot import name '[\w.]+' from '[\w.]+'"),
    ErrorPattern(
        Cause.IMPORT_FAILED,
        r"ImportError: numpy\.core\.multiarray failed to import|"
        r"ValueError: numpy\.dtype size changed|ImportError: [^\n]*module compiled against",
        "a package was built for another version of NumPy: reinstall it, or install `numpy<2`",
    ),
    ErrorPattern(
        Cause.MODULE_MISSING,
        r"ModuleNotFoundError: No module named '([\w.]+)\.(\w+)'",
        "`{0}` is installed but has no `{1}`: check its version, and that --code includes all your "
        "files",
    ),
    ErrorPattern(
        Cause.MODULE_MISSING,
        r"ModuleNotFoundError: No module named '([\w.]+)'",
        "`{0}` is not installed in the job's environment: add it to the environment (-e FILE), or "
        "install it there",
    ),
    ErrorPattern(
        Cause.SCRIPT_EXCEPTION,
        rf"KeyError: '({_RANKS})'$",
        _NOT_PYTORCH,
        file=r"(?:\bos\.py|<frozen os>)$",
    ),
    ErrorPattern(
        Cause.SCRIPT_EXCEPTION,
        rf"ValueError: Error initializing torch\.distributed using env:// rendezvous: "
        rf"environment variable ({_RANKS}) expected, but not set",
        _NOT_PYTORCH,
    ),
    ErrorPattern(
        Cause.SCRIPT_EXCEPTION,
        r"TypeError: int\(\) argument must be a string, [^\n]*'NoneType'$",
        "`-d pytorch` sets the variable that this line reads, " + _AS_PYTORCH,
        source=rf".*\b(?:getenv|environ\.get)\(['\"](?:{_RANKS})['\"]\)",
    ),
    ErrorPattern(
        Cause.SCRIPT_EXCEPTION,
        r"KeyError: 'MLFLOW_(?:RUN_ID|TRACKING_URI|EXPERIMENT_(?:ID|NAME))'$",
        _NO_MLFLOW,
        file=r"(?:\bos\.py|<frozen os>)$",
    ),
    ErrorPattern(
        Cause.SCRIPT_EXCEPTION,
        r"TypeError: str expected, not NoneType$",
        _NO_MLFLOW,
        source=r".*\bMLFLOW_(?:RUN_ID|TRACKING_URI|EXPERIMENT_(?:ID|NAME))\b",
    ),
    ErrorPattern(
        Cause.SCRIPT_EXCEPTION,
        r"AttributeError: module 'numpy' has no attribute '(bool|complex|float|int|object|str)'",
        "NumPy 1.24 has removed `np.{0}`: install `numpy<1.24` (Python 3.11 or older), or write "
        "`{0}`",
    ),
    ErrorPattern(
        Cause.SCRIPT_EXCEPTION,
        r"OperationalError: (?:\(sqlite3\.OperationalError\) )?"
        r"(?:duplicate column name: |table \S+ already exists)",
        "several ranks made the same SQLite database at once, as MLflow does with `mlflow.db` in "
        "the working folder: log from rank 0 only, or install `allranks[mlflow]` for the server "
        "and restart it, so that ranks log there",
    ),
    ErrorPattern(
        Cause.CHECKPOINT_DAMAGED,
        r"RuntimeError: PytorchStreamReader failed|RuntimeError: unexpected EOF, expected \d+ more"
        r"|BadZipFile: |UnpicklingError: (?:pickle data was truncated|invalid load key|unpickling "
        r"stack underflow)|SafetensorError: Error while deserializing|"
        r"OSError: Unable to (?:synchronously )?open file \((?:truncated|file signature)",
    ),
    ErrorPattern(Cause.BREAKPOINT, r"BdbQuit$"),
    ErrorPattern(Cause.NO_INPUT, r"EOFError: EOF when reading a line$"),
    ErrorPattern(
        Cause.CHECKPOINT_DAMAGED,
        r"EOFError: (?:Ran out of input|No data left in file)",
    ),
    ErrorPattern(
        Cause.CHECKPOINT_DAMAGED,
        r"EOFError$",
        file=r"torch/(?:serialization|_weights_only\w+)\.py$",
    ),
    ErrorPattern(Cause.CHECKPOINT_REFUSED, r"UnpicklingError: Weights only load failed"),
    ErrorPattern(Cause.CHECKPOINT_MISMATCH, r"RuntimeError: Error\(s\) in loading state_dict for "),
    ErrorPattern(
        Cause.CHECKPOINT_MISMATCH,
        r"ValueError: loaded state dict (?:has a different number|contains a parameter group)",
    ),
)
