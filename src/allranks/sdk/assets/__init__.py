"""Computes, data, environments, models and state folders for Python programs.

Imports `sdk.submit`, `sdk.transfer`, `sdk.connection`.
"""
