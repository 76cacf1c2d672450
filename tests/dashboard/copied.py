"""The link that *Copy link* in the sidebar copies."""

import json
from urllib.parse import parse_qs, urlsplit

from streamlit.testing.v1 import AppTest

from jarvis.dashboard.widgets.copy_button import COMPONENT


def copied_url(page: AppTest) -> str:
    """Return the link of a page."""
    components = (each.proto for each in page.sidebar.get("bidi_component"))
    (copy,) = (proto for proto in components if proto.component_name == COMPONENT)
    return str(json.loads(copy.json)["link"])


def copied_parameters(page: AppTest) -> dict[str, list[str]]:
    """Return the parameters of the link of a page."""
    return parse_qs(urlsplit(copied_url(page)).query)
