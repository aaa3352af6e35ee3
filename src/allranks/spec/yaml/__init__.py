"""Read and write job files, and `--set`.

Imports the models.
"""
