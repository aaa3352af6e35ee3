"""Start a node's ranks and the helpers of their distribution.

Imports `agent.environments`, `agent.network`, `agent.processes`, `agent.programs`.
"""
