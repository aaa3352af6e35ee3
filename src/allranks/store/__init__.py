"""The record of a home: its database and the files beside it.

Imports `allranks.core`, `allranks.spec` and what is below them.
"""
