"""Watch a node's ranks: resource use, metrics, hangs, stacks.

Imports `agent.processes`, `agent.transport`.
"""
