"""Replay: which operators can be timed elsewhere, and the package that does it."""

from jarvis.dashboard.pages.replay import page
from jarvis.dashboard.session.state import opened
from jarvis.dashboard.widgets.header import page_header

now = opened()
page_header("Replay", ":material/replay:", now)
page.replay_page(now)
