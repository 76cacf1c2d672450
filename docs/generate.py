"""Write the generated pages of docs/, or check that they are up to date.

python docs/generate.py [--check] [PAGE ...]
"""

import argparse
import sys
from pathlib import Path

from bad_inputs import bad_inputs_markdown
from broken_inputs import broken_inputs_markdown

from jarvis.analyses import checks_markdown
from jarvis.cli.reference import command_line_markdown
from jarvis.core.product import API
from jarvis.ranks.findings import rank_checks_markdown
from jarvis.schemas import schemas_markdown
from jarvis.server.http.api import api
from jarvis.server.http.api.description import api_markdown
from jarvis.server.settings_shown import settings_markdown
from jarvis.validation import validation_markdown

HERE = Path(__file__).parent
PAGES = {
    "api.md": lambda: api_markdown(api().openapi(), API),
    "bad-inputs.md": bad_inputs_markdown,
    "broken-traces.md": broken_inputs_markdown,
    "checks.md": lambda: f"{checks_markdown()}\n{rank_checks_markdown()}",
    "command-line.md": command_line_markdown,
    "metrics.md": schemas_markdown,
    "settings.md": settings_markdown,
    "validation.md": validation_markdown,
}


def main() -> int:
    """Return exit code 1 if ``--check`` finds a page that is out of date."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, only compare")
    parser.add_argument("pages", nargs="*", metavar="PAGE", help="such as checks.md (default: all)")
    arguments = parser.parse_args()
    if unknown := set(arguments.pages) - set(PAGES):
        parser.error(f"{', '.join(sorted(unknown))}: not a generated page")
    stale = []
    for name in arguments.pages or PAGES:
        page, text = HERE / name, PAGES[name]()
        if arguments.check:
            if not page.exists() or page.read_text(encoding="utf-8") != text:
                stale.append(name)
        else:
            page.write_text(text, encoding="utf-8")
    if stale:
        sys.stderr.write(f"Out of date: {', '.join(stale)}. Run `make docs` and commit.\n")
    return 1 if stale else 0


if __name__ == "__main__":
    raise SystemExit(main())
