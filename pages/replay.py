"""Replay page: replay packages of operators."""

from jarvis.dashboard.pages import replay
from jarvis.dashboard.widgets.header import page_header

now = page_header("Replay", ":material/replay:")
replay.replay_page(now)
