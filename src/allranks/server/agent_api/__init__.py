"""Routes that agents call.

Imports everything of the server but `routes`.
"""
