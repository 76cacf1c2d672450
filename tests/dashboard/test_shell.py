"""The frame of all pages: what is loaded and sent first, and the title of the tab."""

import subprocess
import sys

import pytest
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from streamlit.testing.v1 import local_script_runner
from streamlit.testing.v1.element_tree import parse_tree_from_messages

from jarvis.analyses import load_analyses
from jarvis.dashboard.shell import tab_title
from jarvis.server.storage.catalog import name_of, read_catalog
from tests.dashboard.conftest import Draw

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


def test_the_page_is_sent_before_the_links_to_all_others(
    registered: Draw, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The title would wait for the browser to draw all links."""
    sent: list[ForwardMsg] = []

    def parse(messages: list[ForwardMsg]) -> object:
        sent[:] = messages
        return parse_tree_from_messages(messages)

    monkeypatch.setattr(local_script_runner, "parse_tree_from_messages", parse)
    assert not registered("gemm").exception
    elements = [message.delta.new_element for message in sent if message.HasField("delta")]
    kinds = [element.WhichOneof("type") for element in elements]
    titles = [element.heading.tag == "h1" for element in elements]
    assert kinds.count("page_link") > len(load_analyses())
    assert titles.index(True) < kinds.index("page_link")
