"""Compare page: time differences between target and reference, and expected ratios."""

from jarvis.dashboard.pages.compare import page
from jarvis.dashboard.session.state import opened
from jarvis.dashboard.widgets.header import page_header

now = opened()
page_header("Compare", ":material/compare_arrows:", now)
page.render(now)
