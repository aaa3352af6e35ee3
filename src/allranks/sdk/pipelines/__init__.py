"""Pipelines in Python: functions whose calls of components are steps.

May import `spec`, and of `sdk` only `connection` and `submit`."""
