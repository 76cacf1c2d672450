"""Which groups of sheets two reports can be compared by, under TraceLens's names.

Of its own, so that the command line can offer them without what makes the sheets.
"""

GROUPS = ("gpu_timeline", "ops_summary", "kernel_summary", "ops_all", "roofline")
ALL = "all"
"""Stands for every group that all reports have."""
