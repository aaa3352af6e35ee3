"""Run by Alembic, with the connection that `upgrade` opened."""

from alembic import context

from allranks.store.tables import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
with context.begin_transaction():
    context.run_migrations()
