"""Server side of the dashboard and the command line: stored analyses, jobs, access and uploads."""
