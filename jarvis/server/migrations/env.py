"""What Alembic runs: the changes, on the connection that it was given."""

from alembic import context

context.configure(connection=context.config.attributes["connection"])
context.run_migrations()
