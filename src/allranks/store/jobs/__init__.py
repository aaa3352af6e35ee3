"""Jobs in the database: their rows, events, children, annotations and results.

May import what `store` may."""
