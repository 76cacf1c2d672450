"""Graphs: launches of GPU graphs, and the captures of their kernels."""

from jarvis.dashboard.pages.inference import graphs
from jarvis.dashboard.widgets.header import page_header

now = page_header("Graphs", ":material/hub:")
graphs.render(now)
