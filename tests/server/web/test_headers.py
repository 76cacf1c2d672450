"""What browsers are told: on every answer, and that pages work under it."""

import base64
import hashlib
import re
from pathlib import Path

import pytest
import streamlit

from jarvis.server.web.headers import CONTENT_SECURITY_POLICY
from tests.services.serving import Serving

SECURE = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "strict-transport-security": "max-age=31536000",
}


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/", 200),
        ("/overview", 200),
        ("/healthz", 200),
        ("/metrics", 200),
        ("/_stcore/health", 200),
        ("/overview/_stcore/health", 404),
        ("/media/nothing", 404),
    ],
)
def test_every_answer_has_the_headers(served: Serving, path: str, status: int) -> None:
    answer = served.client.get(path)
    assert answer.status_code == status
    assert SECURE.items() <= dict(answer.headers).items()
    assert "default-src 'self'" in answer.headers["content-security-policy"]
    assert "server" not in answer.headers
    assert re.fullmatch("[0-9a-f]{16}", answer.headers["x-request-id"])


def test_nothing_from_elsewhere_and_no_evaluation_is_allowed() -> None:
    sources = {source for given in CONTENT_SECURITY_POLICY.values() for source in given}
    assert not [source for source in sources if "." in source or source in ("*", "https:")]
    assert "'unsafe-eval'" not in sources
    assert "'unsafe-inline'" not in CONTENT_SECURITY_POLICY["script-src"]


def test_the_scripts_in_the_page_are_those_that_are_allowed() -> None:
    page = Path(streamlit.__file__).parent / "static" / "index.html"
    scripts = re.findall(r"<script>(.*?)</script>", page.read_text(encoding="utf-8"), re.DOTALL)
    assert scripts
    for script in scripts:
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in CONTENT_SECURITY_POLICY["script-src"]
