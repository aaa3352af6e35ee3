"""The pages by subject: each turns answers of the API into HTML, JSON or events.

Imports `ui.api`, `ui.live` and `ui.render`.
"""
