import gzip
import os
import re

import pace

os.makedirs("ckpt", exist_ok=True)
found = sorted(int(re.findall(r"\d+", name)[0]) for name in os.listdir("ckpt"))
begun = found[-1] if found else 0
assert len(found) <= 2, found
if begun:
    with gzip.open(f"ckpt/{begun}.pt.gz") as file:
        assert file.read() == b"weights %d" % begun
for step in range(begun + 1, 6):
    with gzip.open(f"ckpt/{step}.pt.gz", "wb") as file:
        file.write(b"weights %d" % step)
    if os.path.exists(f"ckpt/{step - 2}.pt.gz"):
        os.remove(f"ckpt/{step - 2}.pt.gz")
    pace.step(step, begun)
