"""Commands for the server, computes, disk space and the live view.

Imports `cli.output`.
"""
