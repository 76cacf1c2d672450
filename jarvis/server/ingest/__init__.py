"""Trace ingestion: uploads, server paths, downloads by URL, and runs on other machines."""
