"""The *Ingest* page: upload or fetch a trace and analyze it."""
