"""Named, versioned things, and where data lies.

Imports `server.clusters`, `server.auth`.
"""
