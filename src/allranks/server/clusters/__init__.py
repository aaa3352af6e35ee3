"""Computes and the engines behind them.

Imports no other server package.
"""
