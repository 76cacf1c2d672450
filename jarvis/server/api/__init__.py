"""The HTTP API: what programs ask, and what browsers and `jarvis push` upload to."""

from jarvis.server.api.application import PREFIX, api

__all__ = ["PREFIX", "api"]
