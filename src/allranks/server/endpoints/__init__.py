"""Keeps the replicas of deployments running, and tells the router about them.

May import what `schedules` may."""
