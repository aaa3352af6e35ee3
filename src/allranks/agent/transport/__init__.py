"""Talk to the server: orders in, events out, over HTTP or a shared folder.

Imports `agent.network`.
"""
