"""Alembic environment: runs the migrations on the connection of the configuration."""

from alembic import context

context.configure(connection=context.config.attributes["connection"])
context.run_migrations()
