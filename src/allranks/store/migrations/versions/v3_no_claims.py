"""Jobs without claims: a lock allows one server for each database."""

from alembic import op

revision = "v3"
down_revision = "v2"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE jobs DROP COLUMN lease_owner")
    op.execute("ALTER TABLE jobs DROP COLUMN lease_until")
