"""GPU and host activity over time: busy and idle time, gaps and their causes, host threads."""
