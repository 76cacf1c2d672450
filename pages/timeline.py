"""Timeline page: GPU and host activity over time, down to single kernels and calls."""

from jarvis.dashboard.pages.timeline import page
from jarvis.dashboard.widgets.header import page_header

now = page_header("Timeline", ":material/view_timeline:")
page.render(now)
