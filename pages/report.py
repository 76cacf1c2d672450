"""Report: read and download what the analysis says."""

from jarvis.dashboard import report
from jarvis.dashboard.page_head import page_head
from jarvis.dashboard.state import opened

now = opened()
page_head("Report", ":material/description:", now)
report.downloads(now)
report.preview(now)
