"""All our HTTP listeners (`server`), and limits on what their unauthenticated clients may hold."""
