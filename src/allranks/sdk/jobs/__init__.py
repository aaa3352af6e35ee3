"""Follow jobs, read their metrics and show them in notebooks.

Imports `sdk.connection`.
"""
