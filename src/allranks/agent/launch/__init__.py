"""Start a node's ranks, with what their distribution needs.

Imports `agent.environments`, `agent.network`, `agent.processes`, `agent.programs`.
"""
