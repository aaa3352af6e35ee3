"""Find or start the server; the URLs of its API.

Imports no other SDK package.
"""
