"""What Jarvis has for users of TraceLens: its sheets, options and comparison reports."""
