"""Build the virtual environment or container that a node's ranks run in.

Imports `agent.processes`.
"""
