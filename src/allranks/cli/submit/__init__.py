"""Commands that submit jobs: run, create, restart, rehearse.

Imports `cli.job`, `cli.output`.
"""
