"""Routes that people call, one module for each resource.

Imports everything of the server but `agents`.
"""
