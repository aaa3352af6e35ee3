"""Download files of jobs and models.

Imports `sdk.jobs`, `sdk.connection`.
"""
