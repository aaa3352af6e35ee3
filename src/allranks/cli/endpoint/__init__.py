"""`allranks endpoint …`, `allranks deployment …` and `allranks model deploy`."""
