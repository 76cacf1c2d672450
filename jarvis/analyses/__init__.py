"""Analyses: what is slow in a category of operations, and in the system as a whole."""

from jarvis.analyses import chain_context as chain_context  # its messages are in stored findings
from jarvis.analyses.documentation import checks_markdown
from jarvis.analyses.registry import Registry, in_page_order, load_analyses, load_registry

__all__ = ["Registry", "checks_markdown", "in_page_order", "load_analyses", "load_registry"]
