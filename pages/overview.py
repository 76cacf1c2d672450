"""Overview page: verdict, findings in order, and where the time goes."""

from jarvis.dashboard.pages.overview import page, tables
from jarvis.dashboard.widgets.header import health_facts, health_warnings, page_header
from jarvis.dashboard.widgets.other_tools import why_another_tool

now = page_header("Overview", ":material/dashboard:", has_health=True)
health_warnings(now)
page.verdict(now)
page.answer(now)
page.time_spent(now)
health_facts(now)
tables.top_operations(now)
tables.against_reference(now)
tables.failed_models(now)
why_another_tool(now, page.PAGE)
tables.trace_facts(now)
