"""The *Timeline* page."""
