"""Overview: where GPU time goes, and what to do first."""

from jarvis.dashboard import overview, overview_tables
from jarvis.dashboard.definitions import why_another_tool
from jarvis.dashboard.page_head import page_head
from jarvis.dashboard.ranked_findings import ranked_findings
from jarvis.dashboard.state import opened
from jarvis.dashboard.trace_health import health_header

now = opened()
page_head("Overview", ":material/dashboard:", now, has_health=True)
health_header(now)
target_pct = overview.controls()
overview.summary(now, target_pct)
ranked_findings(now, target_pct)
overview_tables.top_operations(now)
overview_tables.against_reference(now)
overview_tables.failed_models(now)
why_another_tool(now, overview.PAGE)
overview_tables.trace_facts(now)
