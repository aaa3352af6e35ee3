"""What `allranks doctor --job` runs on each node.

Imports `agent.network`.
"""
