"""The application of people's routes: the table of them, and how each is called.

Imports `routes` only when a request needs one.
"""
