"""Modules loaded before the first page is drawn."""

import subprocess
import sys

LOADED = """
import sys
import jarvis.dashboard.shell
print(hasattr(sys.modules.get("pandas"), "Timestamp"))
"""


def test_no_page_is_drawn_while_another_one_loads_pandas() -> None:
    """Altair used a partly imported pandas in concurrent first sessions of a server."""
    done = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True)
    assert done.stdout == "True\n", done.stderr
