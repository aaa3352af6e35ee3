"""Submits the jobs of schedules when they are due.

May import what `parents` may, and `parents`."""
