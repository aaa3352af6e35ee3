"""Commands for data, datastores, environments, models and state folders.

Imports `cli.output`.
"""
