"""Text formatting: numbers with units, Markdown, CSV, and the messages of findings."""
