"""Make one try again: `python -m tests.hostile KIND NUMBER`."""

import sys
import tempfile
from pathlib import Path

from tests.hostile.harness import check
from tests.hostile.test_hostile_peers import KINDS

name, number = sys.argv[1], int(sys.argv[2])
root = Path(tempfile.mkdtemp(prefix=f"hostile-{name}-{number}-"))
print(root)
try:
    check(KINDS[name], name, number, root)
finally:
    getattr(KINDS[name], "close", lambda: None)()
