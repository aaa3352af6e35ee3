"""results of pipeline steps"""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "step_results",
        sa.Column(
            "job_id",
            sa.Integer,
            sa.ForeignKey("jobs.id", ondelete="CASCADE"),
            primary_key=True,
            autoincrement=False,
        ),
        sa.Column("step", sa.String(600), nullable=False),
        sa.Column("fingerprint", sa.String(64), nullable=False),
        sa.Column("parts", sa.JSON, nullable=False),
        sa.Column("outputs", sa.JSON, nullable=False),
    )
    op.create_index("step_results_step", "step_results", ["step", "job_id"])
    op.create_index("step_results_fingerprint", "step_results", ["fingerprint"])
