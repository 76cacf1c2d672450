"""The analyses that jobs use, the role of a job's owner, owners of GPU descriptions."""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

_NAMED = {
    "analyze": (("submission", "reference"),),
    "fetch": (("wishes", "reference"),),
    "reproject": (("analysis",),),
    "export": (("analysis",),),
    "replay": (("analysis",),),
    "compare": (("target",), ("reference",)),
}
"""Paths of analysis ids in the parameters of each job kind."""


def upgrade() -> None:
    """Create the tables, and fill the first one from the existing jobs."""
    role = sa.Column("role", sa.String(16), nullable=False, server_default="editor")
    op.add_column("jobs", role)
    job_analyses = op.create_table(
        "job_analyses",
        sa.Column("job_id", sa.String(16), primary_key=True),
        sa.Column("analysis_id", sa.String(64), primary_key=True),
        sa.Column("owner", sa.Text),
        sa.Column("visibility", sa.String(16)),
    )
    op.create_index("job_analyses_by_analysis", "job_analyses", ["analysis_id"])
    op.create_table(
        "hardware_owners",
        sa.Column("file", sa.String(255), primary_key=True),
        sa.Column("owner", sa.Text, nullable=False),
    )
    jobs = sa.table(
        "jobs",
        sa.column("id"),
        sa.column("kind"),
        sa.column("parameters", sa.JSON),
        sa.column("analysis_id"),
        sa.column("owner"),
        sa.column("visibility"),
    )
    connection = op.get_bind()
    analyses = sa.table("analyses", sa.column("id"))
    stored = frozenset(connection.scalars(sa.select(analyses.c.id)))
    rows = [
        {
            "job_id": job["id"],
            "analysis_id": name,
            "owner": None if name in stored else job["owner"],
            "visibility": None if name in stored else job["visibility"],
        }
        for job in connection.execute(sa.select(jobs)).mappings()
        for name in _named(job["kind"], job["parameters"], job["analysis_id"])
    ]
    if rows:
        connection.execute(sa.insert(job_analyses), rows)


def _named(kind: str, parameters: Any, analysis_id: str | None) -> list[str]:
    """Return the analyses that a job uses and the one that it created, each once."""
    names = [analysis_id, *(_at(parameters, path) for path in _NAMED.get(kind, ()))]
    return list(dict.fromkeys(name for name in names if isinstance(name, str) and len(name) <= 64))


def _at(value: Any, path: tuple[str, ...]) -> Any:
    """Return the value at a path of keys; None if there is none."""
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value
