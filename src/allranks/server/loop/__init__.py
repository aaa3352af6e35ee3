"""The reconciliation loop that drives jobs.

Imports `server.jobs` and what is below it.
"""
