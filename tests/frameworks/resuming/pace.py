"""Stands for the time that training takes: the first run gets no further than its third step."""

import time


def step(number: int, began_after: int) -> None:
    """Say which step is done; a run from the start stays at the third, until somebody ends it."""
    print(f"step {number} after {began_after}", flush=True)
    if began_after == 0 and number == 3:
        print("holding", flush=True)
        time.sleep(600)
