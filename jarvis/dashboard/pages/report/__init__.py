"""The *Report* page."""
