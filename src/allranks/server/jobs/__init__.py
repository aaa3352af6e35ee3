"""Views of a job: its JSON, result, failure explanation, comparison and registered models.

Imports `server.assets`, `server.auth`.
"""
