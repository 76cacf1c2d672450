"""What-if: changes that are simulated together, and what they save of a step."""

from jarvis.dashboard.pages.what_if import page
from jarvis.dashboard.widgets.header import page_header

now = page_header("What-if", ":material/alt_route:")
page.render(now)
