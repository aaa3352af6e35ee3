"""Take in new, continued and restarted jobs.

Imports `server.storage` and what is below it.
"""
