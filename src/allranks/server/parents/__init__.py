"""Runs sweeps and pipelines: draws trials, submits children, ends parents.

May import what `loop` may."""
