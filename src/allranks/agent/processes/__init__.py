"""Start, follow and end processes; know which belong to which rank.

Imports no other agent package.
"""
