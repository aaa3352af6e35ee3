"""Profiles of a job's ranks: what each spends its time on, and one verdict over all. Pure."""
