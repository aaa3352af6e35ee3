"""The Ray engine: a gang is a Ray job.

Imports `engines.base` and what engines share.
"""
