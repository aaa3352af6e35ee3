"""Runs pipelines: binds and submits steps, and reuses earlier results.

May import what `submission` may."""
