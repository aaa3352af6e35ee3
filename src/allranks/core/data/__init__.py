"""Decisions about stored things: addresses, state manifests, what `gc` removes.

Pure; imports nothing else of `core` but text and amounts.
"""
