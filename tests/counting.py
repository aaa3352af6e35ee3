"""A job that counts, and goes on from where it was, well or badly: for rehearsals."""

STEP = r"step (?P<step>\d+) loss (?P<value>\S+)"
# Counts, and keeps where it was in all ways but those it is told to be bad at.
SCRIPT = """
import json, os, random, sys, time
from pathlib import Path
how, steps = sys.argv[1], int(sys.argv[2])
state = Path(os.environ["ALLRANKS_STATE_DIR"], "at.json")
at, total = 0, 1.0
if state.exists() and how != "zero":
    if how == "crash": sys.exit("cannot\\x07 read that")
    at, total = json.loads(state.read_text())
    if how == "wrong": total += 0.5
    if how == "hang": time.sleep(600)
for step in range(at + 1, steps + 1):
    total = (total * 1.1 + step) % 97 + 1
    value = total * (1 + random.random() * 1e-6) if how == "noise" else total
    print(f"step {step} loss {value!r} speed {random.random()}", flush=True)
    if step % 10 == 0 and how != "forgetful" and os.environ.get("RANK", "0") == "0":
        beside = state.with_suffix(".new")
        beside.write_text(json.dumps([step, total]))
        beside.replace(state)
    time.sleep(0.05)
"""
