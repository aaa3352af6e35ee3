"""Lines of Azure's command line, `az ml …`, as ours. May import the rest of the command line."""
