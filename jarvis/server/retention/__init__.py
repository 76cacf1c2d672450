"""Removal of analyses and files: on request, by age and size, and what dead jobs left."""
