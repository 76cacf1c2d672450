"""Compare page: time differences between target and reference, and expected ratios."""

from jarvis.dashboard.pages.compare import page
from jarvis.dashboard.widgets.header import page_header

now = page_header("Compare", ":material/compare_arrows:")
page.render(now)
