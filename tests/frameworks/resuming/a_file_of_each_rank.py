import os
import pickle
from pathlib import Path

import pace

file = Path(f"rank-{os.environ['RANK']}.bin")
begun = pickle.loads(file.read_bytes()) if file.exists() else 0
for step in range(begun + 1, 6):
    file.write_bytes(pickle.dumps(step))
    pace.step(step, begun)
