"""Data of jobs: datastores, datasets and outputs."""
