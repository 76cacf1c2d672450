"""Analyses: find what is slow in one category of operations or in the whole system."""

from jarvis.analyses import runner as runner  # registers the message templates that it uses
from jarvis.analyses.registry import (
    Registry,
    check_markdown,
    checks_markdown,
    in_page_order,
    load_analyses,
    load_registry,
)

__all__ = [
    "Registry",
    "check_markdown",
    "checks_markdown",
    "in_page_order",
    "load_analyses",
    "load_registry",
]
