"""Caches of open runs: shared while a run is the same, renewed when it was replaced."""

from pathlib import Path

from jarvis.run.timeline_rows import HostChoice
from jarvis.server.storage.loaded_runs import loaded_rows, loaded_run, loaded_timeline
from jarvis.server.submission import Submission, submit
from tests.builders import trace


def test_pages_and_the_api_share_a_run_until_it_is_replaced(home: Path, tmp_path: Path) -> None:
    built = trace().op("aten::mm", [[64, 32], [32, 16]]).launches("gemm_kernel", us=12)
    root = str(submit(Submission(built.write(tmp_path / "small.json"))).root)
    run = loaded_run(root, 1)
    assert loaded_timeline(root, 1).run is run
    rows = loaded_rows(root, 1, HostChoice.ALL, 3, 4)
    assert rows.timeline is loaded_timeline(root, 1)
    assert rows is loaded_rows(root, 1, HostChoice.ALL, 3, 4)
    assert rows is not loaded_rows(root, 1, HostChoice.ALL, 3, 5)
    assert loaded_run(root, 2) is not run
    assert loaded_timeline(root, 2).run is loaded_run(root, 2)
