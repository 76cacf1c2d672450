"""A whole run as one JSON document: manifest, results and every table as rows."""

from pathlib import Path

import orjson

from jarvis.reports.reporter import Reporter
from jarvis.run import Run


class JsonReporter(Reporter):
    """Made on demand; values that JSON lacks (NaN, infinity) are null."""

    name = "json"
    suffix = ".json"
    in_run = False

    def render(self, run: Run, out: Path) -> None:
        results = {key: result.model_dump(mode="json") for key, result in run.results.items()}
        with out.open("wb") as file:
            file.write(b'{"manifest":' + orjson.dumps(run.manifest.model_dump(mode="json")))
            file.write(b',"results":' + orjson.dumps(results))
            file.write(b',"tables":{')
            for position, name in enumerate(run.manifest.tables):
                rows = orjson.dumps(run.table(name).to_dicts())
                file.write(b"," * bool(position) + orjson.dumps(name) + b":" + rows)
            file.write(b"}}\n")


REPORTER = JsonReporter()
