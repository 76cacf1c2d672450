"""One package per page of the dashboard."""
