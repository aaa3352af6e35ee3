"""Decisions, all pure: no clock, no chance, no files, no processes.

Imports `allranks.spec` and what is below it.
"""
