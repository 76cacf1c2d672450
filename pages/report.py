"""Report: choose what it says, read it, and take it home."""

from jarvis.dashboard import report, report_downloads, report_edits
from jarvis.dashboard.page_head import page_head
from jarvis.dashboard.state import opened

now = opened()
page_head("Report", ":material/description:", now)
edits = report_edits.edited(now)
report_downloads.downloads(now, edits)
report_downloads.replay_packages(now)
report.preview(now, edits)
