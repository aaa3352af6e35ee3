"""Bring inputs from stores into the node's cache, stream them, and upload outputs.

Imports `agent.archives`, `agent.environments`.
"""
