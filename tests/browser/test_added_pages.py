"""The page of a category that an extension added: opened cold, with another analysis too."""

from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from jarvis.server.submission import Submission, submit
from tests.browser.conftest import Server, page_links, settled
from tests.builders import trace

EXTENSION = """
from jarvis.analyses.base import Analysis, Claim, Panel
from jarvis.analyses.checks import low_efficiency


def register(registry):
    registry.categorize("MyProducts", "aten::mm")


ANALYSES = {
    "products": Analysis(
        title="My products",
        icon=":material/radar:",
        claim=Claim(op_categories=("MyProducts",)),
        checks=(low_efficiency,),
        panels=(Panel(kind="roofline", title="My products under the roofline"),),
    )
}
"""


@pytest.fixture(scope="module")
def ids(server: Server, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A run with the category, and one without."""
    folder: Path = tmp_path_factory.mktemp("extension")
    extension = folder / "products.py"
    extension.write_text(EXTENSION, encoding="utf-8")
    built = trace(device="AMD Instinct MI300X")
    built.op("aten::mm", [[4096, 4096], [4096, 4096]]).launches("gemm", us=900)
    source = built.write(folder / "trace.json")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JARVIS_HOME", str(server.home))
        added = submit(Submission(source, extension_file=extension)).id
        return added, submit(Submission(source)).id


def test_the_address_of_an_added_page_holds(
    page: Page, server: Server, ids: tuple[str, str]
) -> None:
    added, plain = ids
    page.goto(f"{server.url}/products?analysis={added}")
    settled(page)
    in_menu = page_links(page).filter(has_text="My products")
    expect(page.get_by_role("heading", name="My products")).to_be_visible()
    expect(in_menu).to_be_visible()
    expect(page.get_by_text("My products under the roofline")).to_be_visible()
    page.goto(f"{server.url}/products?analysis={plain}")
    settled(page)
    expect(page.get_by_text("run without the extension")).to_be_visible()
    expect(in_menu).to_have_count(0)
