"""What the record keeps as files: blobs, trees, logs, state folders.

Imports `store.db`.
"""
