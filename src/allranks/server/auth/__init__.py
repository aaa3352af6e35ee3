"""Tokens, roles, and who a request is from.

Imports no other server package.
"""
