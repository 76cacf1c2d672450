"""Perf models, op categories and categories from a user's file or from other packages.

Each load creates a new registry. A faulty extension is reported, and the report is written without
it.
"""

from jarvis.extensions.loading import ENTRY_POINT_GROUP, Extensions, content_sha256, load_extensions

__all__ = ["ENTRY_POINT_GROUP", "Extensions", "content_sha256", "load_extensions"]
