"""Replay page: replay packages of operators."""

from jarvis.dashboard.pages import replay
from jarvis.dashboard.session.state import opened
from jarvis.dashboard.widgets.header import page_header

now = opened()
page_header("Replay", ":material/replay:", now)
replay.replay_page(now)
