"""Snapshots: the user's code as it is sent to the nodes."""
