"""A run as one JSON document: manifest, results, and the tables as rows.

Tables of single events would dominate its size, so they are omitted; their row counts are listed.
"""

from pathlib import Path

import orjson

from jarvis.core.output import open_output
from jarvis.core.workspace import RunPaths
from jarvis.reports.reporter import Reporter
from jarvis.run import Run
from jarvis.run.results import RESULTS_VERSION, results_data

HOST_EVENTS = frozenset({"host_slices", "host_bins"})
"""Tables that only a timeline needs."""

GPU_EVENTS = frozenset({"gpu_work", "timeline_states", "step_gaps"})
"""Tables of GPU events and of the gaps between them."""

MAX_GPU_EVENTS = 20_000
"""The number of rows from which they are omitted too."""


class JsonReporter(Reporter):
    """Written on demand; values that JSON lacks (NaN, infinity) are null.

    ``tables_left_out`` lists omitted tables: ``rows`` and ``reason`` by the name of the table.
    """

    name = "json"
    suffix = ".json"
    in_run = False

    def render(self, run: Run, out: Path) -> None:
        left_out = _left_out(run)
        with open_output(out) as file:
            file.write(b'{"manifest":' + orjson.dumps(run.manifest.model_dump(mode="json")))
            file.write(b',"results":' + orjson.dumps(results_data(run.results)))
            file.write(b',"results_version":%d' % RESULTS_VERSION)
            file.write(b',"tables_left_out":' + orjson.dumps(left_out))
            file.write(b',"tables":{')
            written = [name for name in run.manifest.tables if name not in left_out]
            for position, name in enumerate(written):
                rows = orjson.dumps(run.table(name).to_dicts())
                file.write(b"," * bool(position) + orjson.dumps(name) + b":" + rows)
            file.write(b"}}\n")


def _left_out(run: Run) -> dict[str, dict[str, object]]:
    found: dict[str, dict[str, object]] = {}
    for name in run.manifest.tables:
        rows = run.table(name).height if name in HOST_EVENTS | GPU_EVENTS else 0
        if name in HOST_EVENTS or rows > MAX_GPU_EVENTS:
            place = RunPaths(Path()).table(name)
            reason = f"single events; the run directory has them as {place}"
            found[name] = {"rows": rows, "reason": reason}
    return found


REPORTER = JsonReporter()
