"""What users write: pydantic models of jobs, computes, data, environments and models.

Imports only `allranks.errors` and other modules of the root.
"""
