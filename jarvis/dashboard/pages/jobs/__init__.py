"""The *Jobs* page."""
