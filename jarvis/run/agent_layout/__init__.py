"""The prepared files of a run directory, in the layout of TraceLens's agent for its tools."""
