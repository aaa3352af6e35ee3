from pathlib import Path

import pace

log = Path("done.log")
begun = len(log.read_text().split()) if log.exists() else 0
for step in range(begun + 1, 6):
    with log.open("a") as file:
        print(step, file=file)
    pace.step(step, begun)
