"""The web page: its own process, a client of the public API with the reader's own token.

Imports `errors`, `statuses`, `core.amounts` and `version`.
"""
