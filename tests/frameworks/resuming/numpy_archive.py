import os

import numpy
import pace

begun = int(numpy.load("weights.npz")["step"]) if os.path.exists("weights.npz") else 0
for step in range(begun + 1, 6):
    numpy.savez("weights.npz", step=step, weights=numpy.ones(1000) * step)
    pace.step(step, begun)
