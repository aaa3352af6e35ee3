"""Why an attempt failed: causes, error patterns, tracebacks, hangs.

Pure.
"""
