"""Runs sweeps: draws trials, judges them, shows them.

May import what `submission` may."""
