"""Elements used by several pages."""
