"""People log in with a real provider, or through a real proxy, and see what they may see."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from jarvis.core.workspace import HOME_VARIABLE
from jarvis.server.access import audit
from jarvis.server.access.audit import Action
from jarvis.server.database import Visibility, database
from jarvis.server.storage.analysis_rows import stored_for
from jarvis.server.submission import Submission, submit
from tests.browser.conftest import START_SECONDS, Server, settled
from tests.browser.readable import problems_of
from tests.builders import trace
from tests.services.identity_proxy import TRUSTED, identity_proxy
from tests.services.oidc import PASSWORD, email_of, provider

SLOW = START_SECONDS * 1000
ROLES = {
    "JARVIS_ADMINS": "@platform",
    "JARVIS_EDITORS": "@ml",
    "JARVIS_DEFAULT_ROLE": "viewer",
    "JARVIS_JOB_SLOTS": "0",
}


@dataclass(frozen=True)
class StoredAnalysis:
    """A home with two analyses of Ada's."""

    home: Path
    private: str
    shared: str


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> StoredAnalysis:
    home = tmp_path_factory.mktemp("home")
    built = trace().op("aten::mm", [[64, 32], [32, 16]]).launches("gemm_kernel", us=12.0)
    file = built.write(home / "trace.json")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(HOME_VARIABLE, str(home))
        with stored_for(email_of("ada"), Visibility.PRIVATE):
            private = submit(Submission(file, model_name="Secret model")).id
        with stored_for(email_of("ada")):
            shared = submit(Submission(file, model_name="Shared model")).id
    return StoredAnalysis(home, private, shared)


@pytest.fixture(scope="module")
def with_login(stored: StoredAnalysis, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server whose people log in."""
    with provider(tmp_path_factory.mktemp("provider")) as made:
        server = Server(stored.home)
        url = f"http://localhost:{server.port}"  # other cookies than the provider's
        server.settings |= ROLES | made.settings(url)
        server.start()
        yield url
        server.stop()


def log_in(page: Page, person: str) -> None:
    page.get_by_role("button", name="Log in").click(timeout=SLOW)
    page.fill("input[name=username]", person)
    page.fill("input[name=password]", PASSWORD)
    page.locator("button[type=submit]").first.click()


@pytest.fixture
def tab(browser: Browser) -> Iterator[Page]:
    """A tab of a browser without a login."""
    context = browser.new_context()
    yield context.new_page()
    context.close()


def test_the_owner_follows_a_link_through_the_login_and_logs_out(
    with_login: str, stored: StoredAnalysis, tab: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = f"{with_login}/overview?analysis={stored.private}"
    tab.goto(link)
    expect(tab.get_by_text("Secret model")).to_have_count(0)
    log_in(tab, "ada")
    tab.wait_for_url(f"**/overview?analysis={stored.private}*", timeout=SLOW)
    settled(tab)
    expect(tab.get_by_text("Secret model").first).to_be_visible(timeout=SLOW)
    tab.goto(f"{with_login}/access")
    expect(tab.get_by_text("ada@example.org · admin").first).to_be_visible(timeout=SLOW)
    expect(tab.get_by_role("heading", name="Audit log")).to_be_visible(timeout=SLOW)
    settled(tab)
    with tab.expect_response("**/auth/logout*", timeout=SLOW):
        tab.get_by_role("button", name="Log out").click()
    expect(tab.get_by_role("button", name="Log in")).to_be_visible(timeout=SLOW)
    tab.goto(link)
    expect(tab.get_by_role("button", name="Log in")).to_be_visible(timeout=SLOW)
    expect(tab.get_by_text("Secret model")).to_have_count(0)
    monkeypatch.setenv(HOME_VARIABLE, str(stored.home))
    lines = [(line.person, line.action) for line in audit.recent(database())]
    assert lines == [(email_of("ada"), Action.LOG_OUT), (email_of("ada"), Action.LOG_IN)]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_who_logs_in_can_read_the_pages(with_login: str, browser: Browser, theme: str) -> None:
    context = browser.new_context(color_scheme=theme)  # type: ignore[arg-type]
    tab = context.new_page()
    tab.goto(f"{with_login}/access")
    expect(tab.get_by_role("button", name="Log in")).to_be_visible(timeout=SLOW)
    settled(tab)
    assert problems_of(tab) == [], theme
    log_in(tab, "ada")
    expect(tab.get_by_role("heading", name="Audit log")).to_be_visible(timeout=SLOW)
    settled(tab)
    assert problems_of(tab) == [], theme
    context.close()


def test_another_user_gets_the_answer_for_no_analysis(
    with_login: str, stored: StoredAnalysis, tab: Page
) -> None:
    tab.goto(f"{with_login}/overview?analysis={stored.private}")
    log_in(tab, "eve")
    reported = tab.get_by_text("on this server: it was deleted, or the link is from another")
    expect(reported).to_be_visible(timeout=SLOW)
    settled(tab)
    assert "Secret model" not in tab.content()
    tab.goto(f"{with_login}/access")
    expect(tab.get_by_text("eve@example.org · editor").first).to_be_visible(timeout=SLOW)
    settled(tab)
    expect(tab.get_by_role("heading", name="Audit log")).to_have_count(0)
    tab.goto(with_login)
    settled(tab)
    expect(tab.get_by_text("Shared model").first).to_be_visible(timeout=SLOW)
    assert "Secret model" not in tab.content()


@pytest.fixture(scope="module")
def behind_proxy(stored: StoredAnalysis) -> Iterator[Server]:
    """A server that a proxy tells who people are."""
    settings = {"JARVIS_ACCESS": "header", "JARVIS_TRUSTED_PROXIES": TRUSTED}
    server = Server(stored.home, **ROLES, **settings)
    server.start()
    yield server
    server.stop()


def test_a_trusted_proxy_names_the_user(
    behind_proxy: Server, stored: StoredAnalysis, tab: Page, tmp_path: Path
) -> None:
    with identity_proxy(tmp_path, behind_proxy.port, email_of("ada"), "ml") as url:
        tab.goto(f"{url}/overview?analysis={stored.private}")
        expect(tab.get_by_text("ada@example.org · editor")).to_be_visible(timeout=SLOW)
        expect(tab.get_by_text("Secret model").first).to_be_visible(timeout=SLOW)


def test_what_anybody_else_says_is_not_believed(
    behind_proxy: Server, stored: StoredAnalysis, tab: Page, tmp_path: Path
) -> None:
    forged = identity_proxy(tmp_path, behind_proxy.port, email_of("ada"), "platform", "127.0.0.1")
    with forged as url:
        tab.goto(f"{url}/overview?analysis={stored.private}")
        reported = tab.get_by_text(
            "A proxy identifies users of this server, and this request did not come through it"
        )
        expect(reported).to_be_visible(timeout=SLOW)
        assert "Secret model" not in tab.content()
