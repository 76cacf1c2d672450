"""How values become text: numbers with units, Markdown, CSV, and the messages of findings."""
