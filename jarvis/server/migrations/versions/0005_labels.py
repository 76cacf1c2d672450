"""Project, branch, commit and tags of an analysis."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Add the columns; in SQLite before the manifest, as in ``0004``."""
    is_sqlite = op.get_bind().dialect.name == "sqlite"
    columns = (
        sa.Column("project", sa.String(100)),
        sa.Column("branch", sa.String(200)),
        sa.Column("commit_id", sa.String(64)),
        sa.Column("tags", sa.JSON, nullable=False, server_default="[]"),
    )
    with op.batch_alter_table("analyses", recreate="always" if is_sqlite else "never") as table:
        before = "loaded_by"
        for column in columns:
            table.add_column(column, insert_after=before if is_sqlite else None)
            before = column.name
