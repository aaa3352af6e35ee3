"""Backups, garbage collection and the inventory of a home.

Imports `server.assets`.
"""
