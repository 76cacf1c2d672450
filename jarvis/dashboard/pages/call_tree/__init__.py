"""The *Call tree* page."""
