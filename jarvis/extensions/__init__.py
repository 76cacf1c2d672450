"""Perf models, op categories and categories from a user's file or from other packages.

Each load makes a registry of its own. What is wrong with an extension is said in a sentence, and
the report is made without that part.
"""

from jarvis.extensions.loading import ENTRY_POINT_GROUP, Extensions, content_sha256, load_extensions

__all__ = ["ENTRY_POINT_GROUP", "Extensions", "content_sha256", "load_extensions"]
