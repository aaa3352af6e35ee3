"""Sweep jobs: their keys, search spaces and early termination.

May import `spec.job` and what it imports.
"""
