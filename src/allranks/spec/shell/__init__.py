"""Put values into bash commands so that bash never runs them.

Imports no other spec package.
"""
