"""Commands for the server, computes, disk space, the live view and shell completion.

Imports `cli.assets`, `cli.output`.
"""
