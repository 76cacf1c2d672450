"""Overview page: verdict, findings in order, and where the time goes."""

from jarvis.dashboard.pages.overview import page, tables
from jarvis.dashboard.session.state import opened
from jarvis.dashboard.widgets.header import health_facts, health_warnings, page_header
from jarvis.dashboard.widgets.other_tools import why_another_tool

now = opened()
page_header("Overview", ":material/dashboard:", now, has_health=True)
health_warnings(now)
target_pct = page.verdict(now)
page.answer(now, target_pct)
page.time_spent(now, target_pct)
health_facts(now)
tables.top_operations(now)
tables.against_reference(now)
tables.failed_models(now)
why_another_tool(now, page.PAGE)
tables.trace_facts(now)
