"""TraceLens compatibility: its sheets, options and comparison reports."""
