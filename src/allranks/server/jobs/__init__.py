"""What the server knows of a job: its view, its files, its result and why it failed.

Imports `server.assets`, `server.auth`.
"""
