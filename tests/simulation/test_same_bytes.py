"""The simulation of a trace is the same on every machine: order of sets, compiled loops or not."""

import os
import subprocess
import sys
from pathlib import Path

from jarvis.sample import write_sample
from jarvis.simulation.stored import TABLES

PRINT_TABLES = """
import sys
from hashlib import sha256
from io import BytesIO
from pathlib import Path

from jarvis.changes import COMPUTE, ScaleGpu, Work
from jarvis.schemas.names import C
from jarvis.simulation.simulation import Simulation
from jarvis.simulation.stored import simulation_tables, stored_graph
from jarvis.trace import read_trace

import polars as pl

trace = read_trace(Path(sys.argv[1]))
tables, info = simulation_tables(trace)
for name, table in tables.items():
    table.write_parquet(buffer := BytesIO())
    print(name, table.height, sha256(buffer.getvalue()).hexdigest())
print(info.model_dump_json())
work = trace.gpu_events.select(C.uid, pl.lit(COMPUTE).alias(C.kind))
steps = pl.DataFrame(schema={C.source: pl.String})
simulation = Simulation(stored_graph(tables, info), {"gpu_work": work, "steps": steps})
print(simulation.saved_ns([ScaleGpu(work=Work(category=COMPUTE), factor=0.5)]))
"""


def test_another_process_finds_the_same(tmp_path: Path) -> None:
    path = write_sample(tmp_path / "trace.json", steps=1, world_size=2, scale="tiny")

    def printed(**variables: str) -> str:
        command = [sys.executable, "-c", PRINT_TABLES, str(path)]
        environment = {**os.environ, **variables}
        return subprocess.run(
            command, env=environment, check=True, capture_output=True, text=True
        ).stdout

    compiled = printed(PYTHONHASHSEED="1")
    assert compiled == printed(PYTHONHASHSEED="2", NUMBA_DISABLE_JIT="1")
    assert [line.split()[0] for line in compiled.splitlines()[: len(TABLES)]] == list(TABLES)
