"""Print tables, status lines and ranks' output to terminals and pipes.

Imports no other command package.
"""
