"""Jobs that wait for other jobs, and jobs that only they need."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Create the table, and add the column."""
    op.create_table(
        "job_waits",
        sa.Column("job_id", sa.String(16), primary_key=True),
        sa.Column("waits_for", sa.String(16), primary_key=True),
    )
    op.create_index("job_waits_by_job", "job_waits", ["waits_for"])
    with op.batch_alter_table("jobs") as table:
        table.add_column(
            sa.Column("is_member", sa.Boolean, nullable=False, server_default=sa.false())
        )


def downgrade() -> None:
    """Delete the waits; jobs of a schema before wait for none."""
    with op.batch_alter_table("jobs") as table:
        table.drop_column("is_member")
    op.drop_table("job_waits")
