"""computes and settings"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "computes",
        sa.Column("name", sa.String(63), primary_key=True),
        sa.Column("spec", sa.JSON, nullable=False),
        sa.Column("created_at", sa.Float, nullable=False),
    )
    op.create_table(
        "settings",
        sa.Column("key", sa.String(63), primary_key=True),
        sa.Column("value", sa.JSON, nullable=False),
    )
