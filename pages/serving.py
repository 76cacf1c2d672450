"""Serving: steps of an inference engine, their phases and rates."""

from jarvis.dashboard.pages.inference import serving
from jarvis.dashboard.widgets.header import page_header

now = page_header("Serving", ":material/speed:")
serving.render(now)
