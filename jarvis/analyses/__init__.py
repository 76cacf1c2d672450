"""Analyses: find what is slow in one category of operations or in the whole system."""

from jarvis.analyses import chain_context as chain_context  # registers its message templates
from jarvis.analyses.registry import (
    Registry,
    checks_markdown,
    in_page_order,
    load_analyses,
    load_registry,
)

__all__ = ["Registry", "checks_markdown", "in_page_order", "load_analyses", "load_registry"]
