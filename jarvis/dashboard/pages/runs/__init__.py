"""The *Runs* page: the stored analyses as runs, with filters, comparison and trend."""
