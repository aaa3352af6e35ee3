"""Record the run in the README: run real commands in a terminal, write docs/run.svg.

.venv/bin/python scripts/picture.py       (needs torch; the script is the one of docs/tutorial.md)
"""

import io
import os
import pty
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).resolve().parents[1]
COMMANDS = [
    "allranks run -n 3 -m loss='loss (\\S+)' -- python train.py",
    "allranks job metrics -",
    "allranks run -n 3 -- bash -c 'test $RANK != 2 || exit 7; sleep 60'",
]


def in_a_terminal(command: str, folder: Path, env: dict[str, str]) -> str:
    """What the command prints on a terminal of 92 columns, in its last state."""
    outer, inner = pty.openpty()
    options = {"stdin": inner, "stdout": inner, "stderr": inner, "cwd": folder, "env": env}
    with subprocess.Popen(["bash", "-c", "stty cols 92; " + command], **options):
        os.close(inner)
        printed = b""
        try:
            while piece := os.read(outer, 65536):
                printed += piece
        except OSError:  # how Linux says that nobody has the terminal open any more
            pass
    os.close(outer)
    text = printed.decode().replace("\r\n", "\n")
    lines = [line.rpartition("\r")[2] for line in text.split("\n")]
    # Only colours stay: moves of the cursor have done their work.
    return re.sub(r"\x1b\[[0-9;?]*[A-HJ-Zac-ln-z]", "", "\n".join(lines))


def main() -> None:
    (script,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs/tutorial.md").read_text(), re.S)
    console = Console(record=True, width=92, file=io.StringIO(), force_terminal=True)
    with tempfile.TemporaryDirectory() as folder:
        home, code = Path(folder, "home"), Path(folder, "project")
        code.mkdir()
        (code / "train.py").write_text(script)
        names = ("HOME", "LANG")
        env = {name: os.environ[name] for name in names if name in os.environ}
        env |= {"TERM": "xterm-256color", "ALLRANKS_HOME": str(home), "PYTHONWARNINGS": "ignore"}
        env["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        allranks = shutil.which("allranks", path=env["PATH"])
        try:
            for command in COMMANDS:
                printed = in_a_terminal(command, code, env).rstrip()
                # The home of this recording stands where the reader's own would.
                printed = printed.replace(str(home), "~/.allranks")
                console.print(Text(f"$ {command}", style="bold"))
                console.print(Text.from_ansi(printed), end="\n\n")
        finally:
            subprocess.run([str(allranks), "server", "stop"], env=env, capture_output=True)
    svg = console.export_svg(title="allranks")
    # Readers' browsers fetch nothing from elsewhere.
    svg = re.sub(r"@font-face \{.*?\}", "", svg, flags=re.S).replace("Fira Code", "monospace")
    (ROOT / "docs/run.svg").write_text(svg)


if __name__ == "__main__":
    main()
