"""Reports in the layout of TraceLens's agent, for its tools."""
