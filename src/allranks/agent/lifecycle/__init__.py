"""Run the agent on one node: prepare, launch, watch, stop, collect.

Imports every other agent package.
"""
