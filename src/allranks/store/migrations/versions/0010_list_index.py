"""an index of what lists of jobs filter and sort by"""

from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    columns = ["parent", "id", "experiment", "status", "name"]
    columns += ["created_at", "started_at", "ended_at"]
    op.create_index("jobs_list", "jobs", columns)
