"""Replay: which operators can be timed elsewhere, and the package that does it."""

from jarvis.dashboard import replay
from jarvis.dashboard.page_head import page_head
from jarvis.dashboard.state import opened

now = opened()
page_head("Replay", ":material/replay:", now)
replay.replay_page(now)
