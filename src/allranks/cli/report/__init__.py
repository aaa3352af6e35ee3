"""Commands that report bottlenecks, scaling and goodput.

Imports `cli.output`.
"""
