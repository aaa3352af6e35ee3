"""Watch one attempt's processes on a node: start and stop them, and explain how they ended.

Imports `agent.launch`, `agent.monitoring`, `agent.processes`, `agent.state`, `agent.transport`.
"""
