"""Choose the network interfaces and ports that ranks use.

Imports no other agent package.
"""
