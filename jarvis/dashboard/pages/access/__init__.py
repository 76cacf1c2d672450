"""The *Access* page: API tokens and the audit log."""
