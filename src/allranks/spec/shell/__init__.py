"""Insert values into bash commands so that bash never executes them.

Imports no other spec package.
"""
