"""The local engine: agents are processes of this machine.

Imports `engines.base`.
"""
