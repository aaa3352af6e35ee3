"""Read and unpack data archives safely.

Imports `agent.processes` and nothing above it.
"""
