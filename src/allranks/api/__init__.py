"""What crosses HTTP: the table of people's routes (`routes.py`), and the types of each answer of
the server, each event's data, each order.

The server's routes are annotated with them, `openapi.json` is made from these annotations, and
clients read answers as them. All but the table are types only: whoever must start fast imports
them below `if TYPE_CHECKING`. Imports nothing of allranks but enums and errors.
"""
