"""Timeline: what GPU and host do at the same time, down to single kernels and calls."""

from jarvis.dashboard import timeline
from jarvis.dashboard.page_head import page_head
from jarvis.dashboard.state import opened

now = opened()
page_head("Timeline", ":material/view_timeline:", now)
timeline.render(now)
