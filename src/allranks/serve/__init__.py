"""The router of endpoints, a process of its own: the server gives it a table, callers their
requests, and replicas of deployments answer.

It goes on while the server is away. Never imports the server.
"""
