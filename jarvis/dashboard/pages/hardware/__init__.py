"""The *Hardware* page: GPUs and their peaks."""
