"""The Slurm engine: a gang is one batch job.

Imports `engines.base` and what engines share.
"""
