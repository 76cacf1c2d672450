"""Analyze a job of 64 small ranks with every fault at once, and folders that nobody should send.

python -m benchmarks.many_ranks

Checks that each fault is named, that the others are joined, and prints how long it took.
"""

import json
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from jarvis.ranks.run import DistributedRun
from tests.ranks.test_distributed import rank_trace

SIZE, FILES = 64, 5_000
MISSING, BROKEN, DOUBLED, MISNAMED = (61, 62, 63), 17, 5, 12
BOMB_MB = 256


def analyzed(folder: Path, out: Path, code: int) -> dict[str, Any]:
    """Run the command, check its exit code, and return what it prints."""
    begin = time.monotonic()
    jarvis = str(Path(sys.executable).with_name("jarvis"))
    command = [jarvis, "analyze", str(folder), "--output-dir", str(out), "--json"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == code, (ended.returncode, ended.stderr)
    print(f"{folder.name}: exit code {code} after {time.monotonic() - begin:.1f} s")
    return json.loads(ended.stdout) if ended.stdout else {"warnings": [ended.stderr], "notes": []}


def faulty(folder: Path) -> None:
    """64 ranks: three are missing, one is broken, one is there twice, one has the wrong name."""
    for rank in set(range(SIZE)) - set(MISSING):
        rank_trace(rank, SIZE, instances=3).write(folder / f"rank{rank}.json")
    broken = folder / f"rank{BROKEN}.json"
    broken.write_bytes(broken.read_bytes()[:200])
    rank_trace(DOUBLED, SIZE, instances=1).write(folder / f"rank{DOUBLED}_again.json")
    (folder / f"rank{MISNAMED}.json").rename(folder / f"rank{MISSING[0]}.json")
    found = analyzed(folder, folder.parent / "out", 3)
    run = DistributedRun.load(folder.parent / "out")
    manifest = run.manifest
    gone = {BROKEN, *MISSING}
    assert [m.rank for m in manifest.usable] == [r for r in range(SIZE) if r not in gone]
    assert [(m.rank, m.state) for m in manifest.failed] == [(BROKEN, "failed")]
    assert manifest.duplicates == {DOUBLED: (f"rank{DOUBLED}_again.json",)}
    said = "\n".join([*found["warnings"], *found["notes"]])
    for text in (
        f"rank{BROKEN}.json: ",
        f"left out: rank{DOUBLED}_again.json",
        "rank61.json: rank 12 by header, 61 by name",
        "missing ranks: 17, 61-63 (4 of 64",
    ):
        assert text in said, text
    instances = run.tables["instances"]
    assert instances["last_rank"].to_list() == [1] * 3
    assert instances["missing_ranks"].to_list() == [sorted(gone)] * 3
    assert instances["transfer_is_bound"].all()
    assert run.results["ranks"].notes


def hostile(folder: Path) -> None:
    """A bomb as rank 7, a hidden file, and a rank that no job has."""
    for name, rank in {"rank0": 0, "rank1": 1, f"rank{1 << 40}": 2, "..rank3": 3}.items():
        rank_trace(rank, 4).write(folder / f"{name}.json")
    with zipfile.ZipFile(folder / "rank7.json.zip", "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("rank7.json", b"[" * (BOMB_MB << 20))
    found = analyzed(folder, folder.parent / "out", 3)
    manifest = DistributedRun.load(folder.parent / "out").manifest
    assert [m.rank for m in manifest.usable] == [0, 1, 2]
    assert [m.file_name for m in manifest.failed] == ["rank7.json.zip"]
    assert len([text for text in found["warnings"] if "rank7" in text]) == 1


def crowded(folder: Path) -> None:
    """More files than a job may have ranks."""
    for rank in range(FILES):
        (folder / f"rank{rank}.json").write_bytes(b"{}")
    (said,) = analyzed(folder, folder.parent / "out", 1)["warnings"]
    assert "5,000 files, and a job may have 4,096 ranks" in said


def main() -> None:
    """Run all of them."""
    for case in (faulty, hostile, crowded):
        with TemporaryDirectory() as name:
            folder = Path(name) / case.__name__
            folder.mkdir()
            case(folder)


if __name__ == "__main__":
    main()
