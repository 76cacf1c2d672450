"""What the dashboard and the command line share on a server: kept analyses and incoming traces."""
