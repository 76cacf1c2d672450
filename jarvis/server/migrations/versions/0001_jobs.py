"""Jobs and workers."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create both tables."""
    moment = sa.DateTime(timezone=True)
    op.create_table(
        "jobs",
        sa.Column("id", sa.String(16), primary_key=True),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("title", sa.Text, nullable=False),
        sa.Column("parameters", sa.JSON, nullable=False),
        sa.Column("fingerprint", sa.String(64), nullable=False),
        sa.Column("folders", sa.JSON, nullable=False),
        sa.Column("owner", sa.Text),
        sa.Column("step", sa.Text),
        sa.Column("step_number", sa.Integer, nullable=False),
        sa.Column("step_count", sa.Integer, nullable=False),
        sa.Column("percent", sa.Float, nullable=False),
        sa.Column("bytes_done", sa.BigInteger),
        sa.Column("bytes_total", sa.BigInteger),
        sa.Column("steps", sa.JSON, nullable=False),
        sa.Column("log", sa.Text, nullable=False),
        sa.Column("error", sa.Text),
        sa.Column("result", sa.JSON),
        sa.Column("analysis_id", sa.String(64)),
        sa.Column("worker", sa.String(64)),
        sa.Column("heartbeat", moment),
        sa.Column("is_cancel_requested", sa.Boolean, nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("created", moment, nullable=False),
        sa.Column("started", moment),
        sa.Column("ended", moment),
    )
    op.create_index("jobs_by_state", "jobs", ["state", "created"])
    op.create_index("jobs_by_request", "jobs", ["fingerprint", "created"])
    is_active = sa.text("state IN ('queued', 'running')")
    op.create_index(
        "jobs_active_once",
        "jobs",
        ["fingerprint"],
        unique=True,
        sqlite_where=is_active,
        postgresql_where=is_active,
    )
    op.create_table(
        "workers",
        sa.Column("id", sa.String(64), primary_key=True),
        sa.Column("slots", sa.Integer, nullable=False),
        sa.Column("started", moment, nullable=False),
        sa.Column("heartbeat", moment, nullable=False),
    )
