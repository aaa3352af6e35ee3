"""Decisions about stored things: addresses, state manifests, retention.

Pure; imports nothing else of `plan` but text and amounts.
"""
