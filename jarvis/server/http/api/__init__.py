"""The HTTP API: what programs ask, and what browsers and `jarvis push` upload to."""

from jarvis.server.http.api.application import api

__all__ = ["api"]
