"""Groups of sheets that can be compared, with TraceLens's names.

A separate module, so that the command line does not import the sheets.
"""

GROUPS = ("gpu_timeline", "ops_summary", "kernel_summary", "ops_all", "roofline")
ALL = "all"
"""All groups that every report has."""
