"""State of a browser session: the open analysis, its links, the user."""
