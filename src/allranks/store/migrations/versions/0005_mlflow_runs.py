"""what MLflow's server has of each job"""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    job = sa.ForeignKey("jobs.id", ondelete="CASCADE")
    op.create_table(
        "mlflow_runs",
        sa.Column("job_id", sa.Integer, job, primary_key=True),
        sa.Column("run_id", sa.String(64), nullable=False),
        sa.Column("experiment_id", sa.String(64), nullable=False),
        sa.Column("positions", sa.JSON, nullable=False),
        sa.Column("done", sa.Integer, nullable=False),
    )
