"""Endpoints and their deployments: records, what changes them, and what is done next.

All pure; imports `spec` for what users wrote."""
