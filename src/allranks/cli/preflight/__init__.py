"""`allranks doctor`: check a machine, or a job's compute, before anything runs.

Imports `cli.output`, `cli.submit`.
"""
