"""Commands that show, follow, change and download jobs.

Imports `cli.output`, `cli.assets`, `cli.report`.
"""
