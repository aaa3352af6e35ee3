"""The server of a home: takes in jobs, drives them with a reconciliation loop, answers the API.

Imports every package but `allranks.cli` and `allranks.sdk`.
"""
