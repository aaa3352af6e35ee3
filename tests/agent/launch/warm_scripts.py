"""Scripts that show all they can see of how they were started. Each runs cold and warm."""

# ruff: noqa: E501  # scripts in one line

# name: (command, files)
SCRIPTS: dict[str, tuple[str, dict[str, str]]] = {}


_PATHS = {"init": "p/__init__.py", "main": "p/__main__.py", "q": "p/q.py", "mine": "mine.py"}
_PATHS |= {"sub": "sub/t.py", "real": "real/t.py"}


def _add(name: str, source: str, command: str = "python s.py", **files: str) -> None:
    SCRIPTS[name] = command, {"s.py": source, **{_PATHS[key]: text for key, text in files.items()}}


_add("prints", "print('hello')")
_add("prints to both streams", "import sys; print('a'); print('b', file=sys.stderr); print('c')")
_add("arguments", "import sys; print(sys.argv)", "python s.py --lr 0.1 'two words' '' \"q'uote\"")
_add("arguments of the shell", "import sys; print(sys.argv)", 'python s.py $RANK "${RANK}" ~ *.py')
_add(
    "argparse",
    "import argparse\np = argparse.ArgumentParser()\np.add_argument('--n', type=int)\np.parse_args()",
    "python s.py --n x",
)
_add(
    "argparse help", "import argparse; argparse.ArgumentParser().parse_args()", "python s.py --help"
)
_add("original arguments", "import sys; print(sys.orig_argv[1:])", "python -u s.py --a 1")
_add("environment", "import os; print(sorted(os.environ.items()))")
_add(
    "environment of a child",
    "import subprocess; print(subprocess.check_output(['env']).decode().splitlines().sort())",
)
_add(
    "variable before",
    "import os; print(os.environ['LR'], os.environ['EMPTY'] == '')",
    "LR=0.5 EMPTY= python s.py",
)
_add(
    "environment as C sees it",
    "import ctypes\ng = ctypes.CDLL(None).getenv\ng.restype = ctypes.c_char_p\nprint(g(b'RANK'), g(b'OLD'))",
)
_add("working folder", "import os; print(os.getcwd(), sorted(os.listdir()))")
_add(
    "folder of cd",
    "import os; print(os.getcwd(), os.environ.get('PWD'))",
    "cd sub && python t.py",
    sub="import os, sys; print(os.getcwd(), os.environ['PWD'], sys.path[0])",
)
_add(
    "paths",
    "import sys; print(sys.path, sys.executable, sys.prefix, sys.exec_prefix, sys.base_prefix)",
)
_add(
    "flags",
    "import sys; print(sys.flags, sys._xoptions, sys.warnoptions)",
    "python -O -X dev=0 -W ignore s.py",
)
_add("optimised", "assert False\nprint(__debug__)", "python -O s.py")
_add(
    "main module",
    "import sys, __main__\nprint(sorted(vars(__main__)), __name__, __file__, __spec__, __doc__, __package__, type(__loader__), __builtins__)\nprint(sys.modules['__main__'] is __main__, __main__.__dict__ is globals())",
)
_add("docstring", '"""of the script"""\nprint(__doc__)')
_add("annotations", "x: int = 1\nprint(__annotations__)")
_add(
    "future",
    "from __future__ import annotations\ndef f(x: Undefined): pass\nprint(f.__annotations__)",
)
_add("no future", "try:\n    def f(x: Undefined): pass\nexcept NameError as e: print(e)")
_add("own module", "import mine; print(mine.x, mine.__file__)", mine="x = 1")
_add("package", "import p.q; print(p.q.__name__)", init="", q="y = 2")
_add(
    "runs a module",
    "",
    "python -m p.q --a 1",
    init="print(__name__)",
    q="import sys\nprint(__name__, sys.argv, sys.path[0], __spec__.name)",
)
_add("runs a package", "", "python -m p", init="", main="import sys\nprint(__name__, sys.argv)")
_add("no such module", "", "python -m nothing.there")
_add(
    "runs code",
    "",
    "python -c 'import sys; print(sys.argv, sys.path[0], __name__, sorted(globals()))' a b",
)
_add("code that fails", "", "python -c 'def f(): 1/0\nf()'")
_add("fails", "def f():\n    raise ValueError('no')\nf()")
_add("fails below", "import mine\nmine.f()", mine="def f():\n    return {}['x']")
_add(
    "chained errors",
    "try:\n    1/0\nexcept ZeroDivisionError as e:\n    raise RuntimeError('then') from e",
)
_add("error in handler", "try:\n    1/0\nexcept ZeroDivisionError:\n    raise KeyError('then')")
_add("notes", "e = ValueError('x')\ne.add_note('a note')\nraise e")
_add("exception group", "raise ExceptionGroup('g', [ValueError(1), TypeError(2)])")
_add("syntax error", "x = (\nprint(1)")
_add("syntax error in a module", "import mine", mine="def f(:\n  pass")
_add("not utf-8", "# -*- coding: latin-1 -*-\nprint('caf\\xe9'.encode())")
_add("no such import", "import nothing_there")
_add("keyboard interrupt", "raise KeyboardInterrupt")
_add("exit 3", "import sys; sys.exit(3)")
_add("exit with text", "import sys; sys.exit('bad thing')")
_add("exit none", "import sys; sys.exit()")
_add("exit 300", "import sys; sys.exit(300)")
_add("exit at once", "import os; print('lost?', end=''); os._exit(7)", "python s.py")
_add("abort", "import os; os.abort()")
_add(
    "segmentation fault", "import ctypes, faulthandler; faulthandler.disable(); ctypes.string_at(0)"
)
_add("killed by itself", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
_add("terminated by itself", "import os, signal; os.kill(os.getpid(), signal.SIGTERM)")
_add(
    "interrupted by itself",
    "import os, signal; os.kill(os.getpid(), signal.SIGINT); print('not reached')",
)
_add(
    "signals",
    "import signal\nfor s in sorted(signal.valid_signals()): print(s, signal.getsignal(s) if s not in (signal.SIGWINCH, signal.SIGURG) else '')\nprint(signal.pthread_sigmask(0, []), signal.set_wakeup_fd(-1))",
)
_add(
    "handles a signal",
    "import os, signal\nsignal.signal(signal.SIGTERM, lambda n, f: print('got', n))\nos.kill(os.getpid(), signal.SIGTERM)\nprint('goes on')",
)
_add(
    "reaps a child",
    "import os\npid = os.fork()\nif pid == 0: os._exit(4)\nprint(os.waitpid(pid, 0)[1])",
)
_add("process group", "import os; print(os.getpgid(0) == os.getpid(), os.getsid(0) == os.getpid())")
_add(
    "descriptors",
    "import os\nprint([os.readlink(f'/proc/self/fd/{f}').partition(':')[0] for f in sorted(map(int, os.listdir('/proc/self/fd'))) if f > 2 and os.path.exists(f'/proc/self/fd/{f}')][:-1])\nprint(os.fstat(1) == os.fstat(2), os.readlink('/proc/self/fd/0'))",
)
_add(
    "streams",
    "import sys\nfor s in (sys.stdin, sys.stdout, sys.stderr): print(s.name, s.mode, s.encoding, s.errors, s.line_buffering, s.write_through, s.isatty(), s.fileno(), s is getattr(sys, '__%s__' % s.name.strip('<>')))",
)
_add("no input", "import sys; print(repr(sys.stdin.read()))")
_add("binary output", "import sys; sys.stdout.buffer.write(bytes(range(256))); sys.stdout.flush()")
_add(
    "unbuffered",
    "import os, sys; sys.stdout.write('a'); os.write(1, b'b'); sys.stderr.write('c'); os.write(1, b'd')",
    "python -u s.py",
)
_add("buffered", "import os, sys; sys.stdout.write('a'); os.write(1, b'b')")
_add("unicode", "print('äöü € 🚀')")
_add(
    "ascii locale",
    "import sys, locale; print(sys.stdout.encoding, sys.getfilesystemencoding(), locale.setlocale(locale.LC_ALL))",
    "LC_ALL=C python s.py",
)
_add(
    "umask and limits",
    "import os, resource; print(oct(os.umask(0)), [resource.getrlimit(r) for r in range(10)], os.nice(0), sorted(os.sched_getaffinity(0)))",
)
_add(
    "threads",
    "import threading, time\nt = threading.Thread(target=lambda: print('in', threading.current_thread().name))\nt.start(); t.join()\nprint(threading.main_thread() is threading.current_thread(), threading.active_count())",
)
_add(
    "thread at exit",
    "import threading\ne = threading.Event()\nthreading.Thread(target=lambda: (e.wait(), threading.main_thread().join(), print('last'))).start()\nprint('first')\ne.set()",
)
_add(
    "thread fails",
    "import threading\nt = threading.Thread(target=lambda: 1/0, name='worker')\nt.start(); t.join()",
)
_add("at exit", "import atexit; atexit.register(print, 'bye'); print('hi')")
_add("deleted at exit", "class A:\n    def __del__(self): print('deleted')\na = A()\nprint('end')")
_add(
    "excepthook",
    "import sys\nsys.excepthook = lambda k, e, t: print('hook', k.__name__, e, t.tb_lineno, e.__traceback__ is t)\n1/0",
)
_add(
    "own hooks",
    "import sys; print(sys.excepthook is sys.__excepthook__, sys.displayhook is sys.__displayhook__, sys.gettrace(), sys.getprofile())",
)
_add(
    "recursion",
    "import sys\ndef f(n): return f(n + 1)\ntry: f(0)\nexcept RecursionError as e: print(e, sys.getrecursionlimit())",
)
_add("garbage", "import gc; print(gc.isenabled(), gc.get_threshold(), gc.garbage)")
_add(
    "warnings",
    "import warnings; warnings.warn('careful'); warnings.warn('old', DeprecationWarning)",
)
_add(
    "logging",
    "import logging\nlogging.warning('w')\nlogging.basicConfig(level=10, force=True)\nlogging.debug('d %s', logging.getLogger().handlers)\nr = logging.LogRecord('n', 10, 'p', 1, 'm', (), None)\nprint(r.relativeCreated < 5000)",
)
_add(
    "dataclasses",
    "import dataclasses, pickle\n@dataclasses.dataclass\nclass P:\n    x: int\n    y: 'list[int]' = dataclasses.field(default_factory=list)\nprint(P(1), P.__module__, dataclasses.fields(P)[1].type)",
)
_add(
    "pickles",
    "import pickle\nclass A:\n    def __init__(self): self.x = 1\nd = pickle.dumps(A())\nprint(d, pickle.loads(d).x)",
)
_add(
    "enum",
    "import enum\nclass E(enum.Enum):\n    A = 1\nprint(E.A, E.__module__, pickle.loads(pickle.dumps(E.A)) is E.A if (pickle := __import__('pickle')) else 0)",
)
_MP = "import multiprocessing as m, os\ndef f(x): return x * x\ndef g(q): q.put((m.current_process().name, __name__))\n"
_POOL = (
    _MP
    + "if __name__ == '__main__':\n    c = m.get_context(%r)\n    with c.Pool(2) as p: print(p.map(f, range(5)))\n    q = c.SimpleQueue(); p = c.Process(target=g, args=(q,)); p.start(); print(q.get()); p.join(); print(p.exitcode)"
)
_add("multiprocessing fork", _POOL % "fork")
_add("multiprocessing spawn", _POOL % "spawn")
_add("multiprocessing forkserver", _POOL % "forkserver")
_add("spawn from a folder", _POOL % "spawn", "cd sub && python t.py", sub=_POOL % "spawn")
_add("spawn of a module", "", "python -m p.q", init="", q=_POOL % "spawn")
_add(
    "futures",
    "from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor\ndef f(x): return x + 1\nif __name__ == '__main__':\n    for E in (ThreadPoolExecutor, ProcessPoolExecutor):\n        with E(2) as e: print(list(e.map(f, range(3))))",
)
_add(
    "asyncio",
    "import asyncio\nasync def main():\n    p = await asyncio.create_subprocess_exec('echo', 'x', stdout=asyncio.subprocess.PIPE)\n    print(await p.communicate(), p.returncode)\nasyncio.run(main())",
)
_add(
    "subprocess",
    "import subprocess, sys\nprint(subprocess.run([sys.executable, '-c', 'import sys; print(sys.flags.optimize, sys.prefix)'], capture_output=True, text=True).stdout)",
)
_add(
    "executes itself",
    "import os, sys\nif len(sys.argv) == 1:\n    print('once', flush=True)\n    os.execv(sys.executable, [sys.executable, *sys.argv, 'again'])\nprint(sys.argv)",
)
_add(
    "temporary folder",
    "import tempfile, os; print(tempfile.gettempdir()); f = tempfile.NamedTemporaryFile(); print(os.path.dirname(f.name))",
    "TMPDIR=/var/tmp python s.py",
)
_add(
    "random with seed",
    "import random; random.seed(3); print(random.random())\nimport numpy; numpy.random.seed(3); print(numpy.random.rand())",
)
_add(
    "numpy",
    "import numpy as np; a = np.random.default_rng(0).normal(size=(64, 64)); print(float((a @ a).sum()))",
)
_add(
    "orphan",
    "import subprocess; subprocess.Popen(['sleep', '1000'], start_new_session=True); print('left one behind')",
)
_add(
    "path of link", "", "python link.py", real="import sys; print(sys.path[0], __file__, sys.argv)"
)
_add("several lines", "import sys; print(sys.argv)", "python s.py \\\n  --a 1 \\\n  --b 2\n")
_add("exec", "print(1)", "exec python s.py")
_add(
    "stack", "import inspect\ndef f(): return [x.function for x in inspect.stack()][:2]\nprint(f())"
)
_add("large output", "for i in range(20000): print(i, 'x' * 50)")


# What the imported modules hold at the end: objects with finalizers end as in a new Python.
_ENDS = "class Ends:\n  def __init__(self, where): self.where = where\n  def __del__(self): print('end', self.where)\n"
for _where, _put in {
    "a module": "import argparse; argparse.kept = Ends('module')",
    "a class": "import argparse; argparse.Namespace.kept = Ends('class')",
    "an object": "import logging; logging.root.kept = Ends('logger')",
    "a list": "import warnings; warnings.filters.append(Ends('list'))",
    "an early module": "import os, sys; os.environ.kept = Ends('os'); sys.kept = Ends('sys')",
    "replaced names": "import argparse; argparse.open = Ends('x'); argparse.Namespace = Ends('y'); argparse._ = Ends('z')",
    "two packages": "import numpy, logging; numpy.random.a = Ends('numpy'); logging.b = Ends('logging')",
    "a name that is gone": "import argparse, sys; argparse.kept = Ends('gone'); del sys.modules['argparse']",
}.items():
    _add(f"finalizer in {_where}", _ENDS + _put)
_add(
    "generator in a module",
    "import argparse\ndef g():\n  try: yield\n  finally: print('closed')\nargparse.kept = g(); next(argparse.kept)",
)
_add(
    "finalizer sees modules",
    "import argparse\nclass Ends:\n  def __del__(self):\n    import argparse; print(argparse.Namespace(), argparse.open)\nargparse.open = open\nx = Ends()",
)
for _where in ("argparse", "argparse.Namespace"):
    _add(
        f"file in {_where}",
        f"import argparse; {_where}.kept = open('o.txt', 'w'); {_where}.kept.write('text')",
    )

_add(
    "file and a metaclass that answers for all names",
    "import argparse\nclass Registry(type):\n  models = {}\n  def __getattr__(c, name): return c.models[name]\nclass Model(metaclass=Registry): pass\nargparse.model = Model()\nargparse.kept = open('o.txt', 'w'); argparse.kept.write('text')",
)
_add(
    "no more descriptors",
    "import os\ntry:\n  while True: os.open('/', 0)\nexcept OSError: print('all')",
)
# These end when nothing is left that ``print`` needs.
_ENDS = "import os, sys, argparse\nclass Ends:\n  def __del__(self, write=os.write): write(1, b'end\\n')\nargparse.kept = Ends()\n"
for _after, _do in {
    "a name that is no text": "vars(argparse)[1] = 2; os.held = argparse",
    "objects that the script has frozen": "import gc; gc.freeze()",
    "sys.modules emptied": "sys.modules.clear()",
    "the last modules gone": "for name in [*sys.modules][60:]: del sys.modules[name]",
    "the last module gone": "argparse.held = argparse\nfor name in [*sys.modules]:\n  if name.endswith('.last'): del sys.modules[name]",
}.items():
    _add(f"finalizer after {_after}", _ENDS + _do)
