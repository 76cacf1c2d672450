"""The job queue: rows, claims, kinds, workers."""
