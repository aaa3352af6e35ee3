"""What allranks claims, measured beside its peers in the same run: ``python -m bench --help``."""
