"""What the header and the file name of a trace tell about its distributed job."""

import json
from pathlib import Path
from typing import Any

import pytest

from jarvis.trace import TraceInfo, read_trace
from tests.builders import PID, trace


def info(place: Path, name: str = "trace.json", **header: Any) -> TraceInfo:
    built = trace().op("aten::mm").launches("gemm")
    document = {**built.document(), **header}
    (place / name).write_text(json.dumps(document), encoding="utf-8")
    return read_trace(place / name).info


def test_the_job_and_its_groups(tmp_path: Path) -> None:
    group = {"pg_name": "1", "pg_desc": "tp", "pg_size": 2, "ranks": [2, 3]}
    header = {"rank": 3, "world_size": 4, "backend": "nccl", "pg_count": 2, "pg_config": [group]}
    found = info(tmp_path, distributedInfo=header | {"nccl_version": "2.21.5"})
    assert (found.rank, found.world_size) == (3, 4)
    assert found.distributed is not None
    assert (found.distributed.backend, found.distributed.nccl_version) == ("nccl", "2.21.5")
    assert found.distributed.group_count == 2
    (only,) = found.distributed.groups
    assert (only.name, only.description, only.size, only.ranks) == ("1", "tp", 2, (2, 3))


def test_a_trace_of_one_process_has_no_job(tmp_path: Path) -> None:
    found = info(tmp_path)
    assert (found.distributed, found.host, found.base_ns) == (None, None, None)
    assert found.visible_gpus == 1


@pytest.mark.parametrize("groups", [None, 3, ["x"], [{"ranks": 5}], [{"ranks": ["a", 1]}]])
def test_damaged_groups_are_left_out(tmp_path: Path, groups: Any) -> None:
    found = info(tmp_path, distributedInfo={"rank": 0, "backend": 7, "pg_config": groups})
    assert found.distributed is not None
    assert found.distributed.backend is None
    assert all(group.ranks == () for group in found.distributed.groups)


def test_the_base_of_times(tmp_path: Path) -> None:
    assert (
        info(tmp_path, baseTimeNanoseconds=1_767_225_600_000_000_000).base_ns == 1767225600 * 10**9
    )


def test_the_host_is_the_start_of_a_name_with_the_process_id(tmp_path: Path) -> None:
    name = f"gpu-node_07_{PID}.1694128201545.pt.trace.json"
    assert info(tmp_path, name).host == "gpu-node_07"


def test_a_name_with_another_number_has_no_host(tmp_path: Path) -> None:
    assert info(tmp_path, "worker0_step_12.1694128201545.pt.trace.json").host is None
