"""The parameters that scripts log."""

from alembic import op

revision = "v2"
down_revision = "v1"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE job_annotations ADD COLUMN parameters JSON")
