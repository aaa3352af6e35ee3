"""indexes of lists that make no row be read; a plainer name for an index"""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # SQLite would use it, and read the rows of all completed jobs, where `jobs_list` does without.
    op.drop_index("jobs_status", "jobs")
    op.drop_index("series_loose", "series")
    where = sa.text("packed < length")
    op.create_index(
        "series_unpacked", "series", ["job_id"], sqlite_where=where, postgresql_where=where
    )
    if op.get_bind().dialect.name == "postgresql":
        op.drop_index("jobs_list", "jobs")
        columns = ["id", "parent", "experiment", "status", "name"]
        columns += ["created_at", "started_at", "ended_at"]
        op.create_index("jobs_list", "jobs", columns)
