import pickle
from pathlib import Path

import pace

latest = Path("checkpoints/latest").absolute()
begun = pickle.loads((latest / "state.pkl").read_bytes()) if latest.exists() else 0
for step in range(begun + 1, 6):
    folder = latest.with_name(f"step-{step}")
    folder.mkdir(parents=True)
    (folder / "state.pkl").write_bytes(pickle.dumps(step))
    link = latest.with_name("latest.new")
    link.symlink_to(folder)
    link.rename(latest)
    pace.step(step, begun)
