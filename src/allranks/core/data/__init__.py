"""Decisions about stored things: addresses, state manifests, retention.

Pure; imports nothing else of `core` but text and amounts.
"""
