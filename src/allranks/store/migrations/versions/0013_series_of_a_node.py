"""find the series of a node without reading those of all nodes of its job"""

from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.drop_index("series_job", "series")
    op.create_index("series_job", "series", ["job_id", "kind", "attempt", "node"])
