"""When the GPU and the host work: busy and idle time, gaps and their causes, host threads."""
