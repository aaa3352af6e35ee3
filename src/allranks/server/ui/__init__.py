"""The web page's server as a child process: `allranks.ui`, which calls the public API.

Imports `server.http`.
"""
