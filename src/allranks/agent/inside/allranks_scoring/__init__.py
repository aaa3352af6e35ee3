"""Answers scoring requests in a replica of a deployment: `python -m allranks_scoring`.

It runs in the environment of the user's model, so it needs only the standard library of any Python
from 3.8 on; a model's own library is imported to load it.
"""
