"""Keep a node's state folder in step with the server.

Imports `agent.data`, `agent.transport`.
"""
