"""The `allranks` command line.

`main` finds a command and imports only its module. Imports the SDK; no other package imports it.
"""
