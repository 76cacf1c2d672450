"""Workers and the processes that run jobs."""
