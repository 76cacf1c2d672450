"""Fixtures for attacks: home, database and API of the server's tests."""

from tests.server.api.conftest import asked_who, client
from tests.server.conftest import engine, home

__all__ = ["asked_who", "client", "engine", "home"]
