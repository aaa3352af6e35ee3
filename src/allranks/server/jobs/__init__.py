"""Views of a job: its JSON, failure explanation, comparison and registered models.

Imports `server.assets`, `server.auth`.
"""
