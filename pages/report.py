"""Report page: edit, preview and download reports."""

from jarvis.dashboard.pages.report import downloads as report_downloads
from jarvis.dashboard.pages.report import edits as report_edits
from jarvis.dashboard.widgets.header import page_header

now = page_header("Report", ":material/description:")
place = report_downloads.place()
edits = report_edits.edited(now)
report_downloads.downloads(now, edits, place)
report_downloads.replay_packages(now)
report_downloads.preview(now, edits)
