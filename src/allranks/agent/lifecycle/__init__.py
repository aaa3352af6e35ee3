"""The agent's life on one node: prepare, launch, watch, stop, collect.

Imports every other agent package.
"""
