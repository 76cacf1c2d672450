"""Job queue: rows, claims, kinds, workers."""
