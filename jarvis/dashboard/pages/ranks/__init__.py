"""The ranks page: several ranks of a job on one clock."""
