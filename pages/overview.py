"""Overview: where GPU time goes, and what to do first."""

from jarvis.dashboard import overview
from jarvis.dashboard.page_head import page_head
from jarvis.dashboard.state import opened

now = opened()
page_head("Overview", ":material/dashboard:", now)
overview.trace_health(now)
target_pct = overview.controls()
overview.figures(now, target_pct)
overview.gpu_time(now, target_pct)
overview.ranked_findings(now, target_pct)
overview.top_operations(now)
overview.against_reference(now)
overview.failed_models(now)
overview.trace_facts(now)
