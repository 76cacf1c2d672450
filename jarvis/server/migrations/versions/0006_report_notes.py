"""Notes on reports: fields and comments by analysis and finding."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"

_TABLES = ("reports", "report_fields", "report_comments")


def upgrade() -> None:
    """Create the tables."""
    moment = sa.DateTime(timezone=True)
    op.create_table(
        "reports",
        sa.Column("analysis_id", sa.String(64), primary_key=True),
        sa.Column("revision", sa.Integer, nullable=False),
    )
    op.create_table(
        "report_fields",
        sa.Column("analysis_id", sa.String(64), primary_key=True),
        sa.Column("finding", sa.String(200), primary_key=True),
        sa.Column("field", sa.String(16), primary_key=True),
        sa.Column("title", sa.Text, nullable=False),
        sa.Column("value", sa.Text),
        sa.Column("revision", sa.Integer, nullable=False),
        sa.Column("author", sa.Text),
        sa.Column("moment", moment, nullable=False),
        sa.Column("imported_by", sa.Text),
    )
    op.create_table(
        "report_comments",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("analysis_id", sa.String(64), nullable=False),
        sa.Column("finding", sa.String(200), nullable=False),
        sa.Column("title", sa.Text, nullable=False),
        sa.Column("text", sa.Text, nullable=False),
        sa.Column("author", sa.Text),
        sa.Column("moment", moment, nullable=False),
        sa.Column("imported_by", sa.Text),
    )
    op.create_index("report_comments_by_analysis", "report_comments", ["analysis_id"])


def downgrade() -> None:
    """Delete the notes; the schema before has no place for them."""
    for table in reversed(_TABLES):
        op.drop_table(table)
