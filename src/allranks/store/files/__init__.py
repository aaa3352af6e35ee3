"""What the record stores as files: blobs, trees, logs, state folders."""
