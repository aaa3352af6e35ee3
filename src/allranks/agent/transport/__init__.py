"""Talk to the server: receive orders and send events, over HTTP or a shared folder.

Imports `agent.network`.
"""
