"""HTTP API for programs, browser uploads and `jarvis push`."""

from jarvis.server.http.api.application import api

__all__ = ["api"]
