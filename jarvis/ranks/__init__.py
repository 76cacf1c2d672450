"""Several ranks of a distributed job as one run, from the tables of their analyses."""
