"""Call tree: which modules and operators launch the GPU time."""

from jarvis.dashboard import call_tree
from jarvis.dashboard.page_head import page_head
from jarvis.dashboard.state import opened

now = opened()
page_head("Call tree", ":material/account_tree:", now)
call_tree.render(now)
