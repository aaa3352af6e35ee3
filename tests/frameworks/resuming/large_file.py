import os

import pace

begun = os.path.getsize("large.bin") // 400_000 if os.path.exists("large.bin") else 0
for step in range(begun + 1, 6):
    with open("large.bin", "ab") as file:
        file.write(os.urandom(400_000))
    pace.step(step, begun)
