"""Compare: what the target does slower than the reference, and what the GPUs explain of it."""

from jarvis.dashboard import compare
from jarvis.dashboard.page_head import page_head
from jarvis.dashboard.state import opened

now = opened()
page_head("Compare", ":material/compare_arrows:", now)
compare.render(now)
