"""Call tree: which modules and operators launch the GPU time."""

from jarvis.dashboard.pages.call_tree import page
from jarvis.dashboard.session.state import opened
from jarvis.dashboard.widgets.header import page_header

now = opened()
page_header("Call tree", ":material/account_tree:", now)
page.render(now)
