import json
from pathlib import Path

import pace

settings = json.loads(Path("settings.json").read_text())
begun = settings.get("step", 0)
assert Path("first-run-only").exists() is (begun == 0)
Path("first-run-only").unlink(missing_ok=True)
for step in range(begun + 1, 6):
    Path("settings.json").write_text(json.dumps({**settings, "step": step}))
    pace.step(step, begun)
