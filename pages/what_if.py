"""What-if: changes that are simulated together, and what they save of a step."""

from jarvis.dashboard.pages.what_if import page
from jarvis.dashboard.session.state import opened
from jarvis.dashboard.widgets.header import page_header

now = opened()
page_header("What-if", ":material/alt_route:", now)
page.render(now)
