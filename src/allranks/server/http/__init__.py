"""Listeners, limits and error responses of the HTTP server.

Imports no other server package.
"""
