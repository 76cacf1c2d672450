"""Security headers of all responses, under which pages work."""

import re

import pytest

from jarvis.server.http.web.headers import CONTENT_SECURITY_POLICY, SCRIPT, source_of
from tests.services.serving import Serving

SECURE = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin-allow-popups",
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


def test_the_scripts_in_the_page_are_those_that_are_allowed(served: Serving) -> None:
    page = served.client.get("/overview", headers={"Accept": "text/html"})
    scripts = re.findall(r"<script>(.*?)</script>", page.text, re.DOTALL)
    assert scripts[0] == SCRIPT
    assert len(scripts) > 1
    for script in scripts:
        assert source_of(script) in CONTENT_SECURITY_POLICY["script-src"]
        assert source_of(script) in page.headers["content-security-policy"]


@pytest.mark.parametrize("path", ["/", "/overview", "/no_such_page?analysis=x"])
def test_a_page_says_where_its_server_is(served: Serving, path: str) -> None:
    answer = served.client.get(
        path, headers={"Accept": "text/html,*/*", "Range": "bytes=0-9", "If-None-Match": "*"}
    )
    assert answer.status_code == 200
    assert int(answer.headers["content-length"]) == len(answer.content)
    assert answer.headers.get("etag") is None
    assert answer.headers["cache-control"] == "no-cache"
    assert answer.text.count(SCRIPT) == 1
    assert answer.text.index(SCRIPT) < answer.text.index('type="module"')
    assert answer.text.rstrip().endswith("</html>")


@pytest.mark.parametrize("path", ["/api/docs", "/media/nothing.html", "/healthz"])
def test_what_is_no_page_stays_as_it_is(served: Serving, path: str) -> None:
    plain, asked = (
        served.client.get(path, headers={"Accept": accept}) for accept in ("*/*", "text/html")
    )
    assert asked.content == plain.content
    assert SCRIPT not in asked.text
