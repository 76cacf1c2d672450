"""Call tree page: GPU time by module, operator and kernel."""

from jarvis.dashboard.pages.call_tree import page
from jarvis.dashboard.widgets.header import page_header

now = page_header("Call tree", ":material/account_tree:")
page.render(now)
