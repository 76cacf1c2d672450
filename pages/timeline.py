"""Timeline page: GPU and host activity over time, down to single kernels and calls."""

from jarvis.dashboard.pages.timeline import page
from jarvis.dashboard.session.state import opened
from jarvis.dashboard.widgets.header import page_header

now = opened()
page_header("Timeline", ":material/view_timeline:", now)
page.render(now)
