"""What a sweep or a pipeline does next, as pure functions. May import `spec` and `core`."""
