"""Replay page: replay packages of operators."""

from jarvis.dashboard.pages.replay import page
from jarvis.dashboard.session.state import opened
from jarvis.dashboard.widgets.header import page_header

now = opened()
page_header("Replay", ":material/replay:", now)
page.replay_page(now)
