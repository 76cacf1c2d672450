"""Layers: the repeated layers of a model, by block and kernel."""

from jarvis.dashboard.pages.inference import layers
from jarvis.dashboard.widgets.header import page_header

now = page_header("Layers", ":material/layers:")
layers.render(now)
