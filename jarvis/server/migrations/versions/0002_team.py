"""Analyses with owners, API tokens, the audit log; where a job runs."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Create the tables and add the columns of jobs."""
    moment = sa.DateTime(timezone=True)
    op.add_column("jobs", sa.Column("place", sa.Text))
    visibility = sa.Column("visibility", sa.String(16), nullable=False, server_default="team")
    op.add_column("jobs", visibility)
    op.create_table(
        "analyses",
        sa.Column("id", sa.String(64), primary_key=True),
        sa.Column("trace_sha256", sa.String(64), nullable=False),
        sa.Column("owner", sa.Text),
        sa.Column("visibility", sa.String(16), nullable=False),
        sa.Column("size_bytes", sa.BigInteger, nullable=False),
        sa.Column("is_pinned", sa.Boolean, nullable=False),
        sa.Column("version", sa.String(32), nullable=False),
        sa.Column("written_ns", sa.BigInteger, nullable=False),
        sa.Column("made_on", sa.String(64)),
        sa.Column("manifest", sa.Text, nullable=False),
    )
    op.create_index("analyses_by_trace", "analyses", ["trace_sha256"])
    op.create_table(
        "tokens",
        sa.Column("id", sa.String(16), primary_key=True),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("owner", sa.Text),
        sa.Column("role", sa.String(16), nullable=False),
        sa.Column("label", sa.Text, nullable=False),
        sa.Column("created", moment, nullable=False),
        sa.Column("expires", moment),
        sa.Column("last_used", moment),
        sa.Column("revoked", moment),
    )
    op.create_table(
        "audit",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("moment", moment, nullable=False),
        sa.Column("person", sa.Text),
        sa.Column("via", sa.String(16), nullable=False),
        sa.Column("action", sa.String(40), nullable=False),
        sa.Column("subject", sa.Text, nullable=False),
        sa.Column("detail", sa.JSON, nullable=False),
    )
    op.create_index("audit_by_moment", "audit", ["moment"])
