"""Who imported an analysis from an archive."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Add the column, and fill it from the audit log.

    SQLite reads a row up to the last selected column, so there it precedes the manifest.
    """
    is_sqlite = op.get_bind().dialect.name == "sqlite"
    with op.batch_alter_table("analyses", recreate="always" if is_sqlite else "never") as table:
        column = sa.Column("loaded_by", sa.Text)
        table.add_column(column, insert_after="made_on" if is_sqlite else None)
    op.execute(
        "UPDATE analyses SET loaded_by = (SELECT coalesce(person, '') FROM audit "
        "WHERE action = 'archive load' AND subject = analyses.id ORDER BY audit.id DESC LIMIT 1)"
    )
