"""The processes that run jobs, locally."""
