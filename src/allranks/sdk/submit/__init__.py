"""Build and submit jobs, restart and rehearse them.

Imports `sdk.jobs`, `sdk.connection`.
"""
