"""Modules loaded before the first page is drawn."""

import subprocess
import sys

from jarvis.dashboard.shell import tab_title
from jarvis.server.storage.catalog import name_of, read_catalog

LOADED = """
import sys
import jarvis.dashboard.shell
print(hasattr(sys.modules.get("pandas"), "Timestamp"))
"""


def test_no_page_is_drawn_while_another_one_loads_pandas() -> None:
    """Altair used a partly imported pandas in concurrent first sessions of a server."""
    done = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True)
    assert done.stdout == "True\n", done.stderr


def test_the_tab_names_page_and_analysis(sample_id: str) -> None:
    catalog = read_catalog()
    entry = catalog.find(sample_id)
    assert tab_title("GEMM", sample_id, catalog) == f"GEMM · {name_of(entry.manifest)} · Jarvis"
    assert tab_title("Jobs", None, catalog) == "Jobs · Jarvis"
