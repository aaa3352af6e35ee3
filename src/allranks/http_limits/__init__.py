"""Limits on what unauthenticated clients of our HTTP listeners may hold."""
