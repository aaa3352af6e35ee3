"""MLflow's own server as a child process, and the mirror of the record in it.

Imports `server.auth`.
"""
