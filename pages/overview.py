"""Overview page: time breakdown and findings by priority."""

from jarvis.dashboard.pages.overview import page, tables
from jarvis.dashboard.pages.overview.tables import ranked_findings
from jarvis.dashboard.session.state import opened
from jarvis.dashboard.widgets.header import health_header, page_header
from jarvis.dashboard.widgets.other_tools import why_another_tool

now = opened()
page_header("Overview", ":material/dashboard:", now, has_health=True)
health_header(now)
target_pct = page.controls()
page.summary(now, target_pct)
ranked_findings(now, target_pct)
tables.top_operations(now)
tables.against_reference(now)
tables.failed_models(now)
why_another_tool(now, page.PAGE)
tables.trace_facts(now)
