"""Run the agent on one node: prepare, start the ranks, watch, stop, collect.

Imports every other agent package.
"""
