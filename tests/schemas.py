"""What a database has: to compare one that was upgraded with a new one."""

from typing import Any

from sqlalchemy import Engine, inspect


def schema(engine: Engine) -> tuple[dict[str, Any], dict[str, str]]:
    """All tables with their columns, keys and constraints, and all indexes, as the database has
    them."""
    found = inspect(engine)
    names = sorted(set(found.get_table_names()) - {"alembic_version"})
    if engine.dialect.name == "sqlite":
        query = "SELECT name, sql FROM sqlite_master WHERE tbl_name != 'alembic_version'"
    else:
        query = "SELECT indexname, indexdef FROM pg_indexes WHERE tablename != 'alembic_version'"
    with engine.connect() as connection:
        texts = {
            name: "".join((text or "").split())
            for name, text in connection.exec_driver_sql(query).all()
        }
    tables = {
        name: (
            [{**column, "type": str(column["type"])} for column in found.get_columns(name)],
            found.get_pk_constraint(name),
            found.get_foreign_keys(name),
            found.get_unique_constraints(name),
        )
        for name in names
    }
    return tables, texts
