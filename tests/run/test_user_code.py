"""Frames of the interpreter around user code."""

import polars as pl

from jarvis.run.timeline_events import starter_frames

START, MAIN = "multiprocessing/spawn.py(122): spawn_main", "train.py(3): main"


def frames(*rows: tuple[int, str, int, int]) -> pl.DataFrame:
    """Return frames from rows of thread, name, start and duration, numbered from 0."""
    table = pl.DataFrame(rows, ["thread", "name", "ts_ns", "dur_ns"], orient="row")
    return table.with_row_index("uid")


def test_the_outermost_frames_of_the_interpreter_start_user_code() -> None:
    found = starter_frames(
        frames(
            (0, "<string>(1): <module>", 0, 100),
            (0, START, 1, 98),
            (0, MAIN, 2, 90),
            (0, "threading.py(655): wait", 3, 10),
            (1, "threading.py(1032): _bootstrap", 0, 50),
            (1, "tqdm/_monitor.py(60): run", 1, 40),
            (1, "torch/distributed/run.py(8): main", 60, 30),
            (1, "torch/nn/module.py(8): forward", 61, 5),
        )
    )
    assert sorted(found) == [0, 1, 4, 6]


def test_a_frame_of_the_interpreter_below_another_thread_or_after_user_code_stays() -> None:
    found = starter_frames(frames((0, START, 0, 100), (1, MAIN, 0, 100), (1, START, 10, 20)))
    assert found.to_list() == [0]
    assert starter_frames(frames((0, MAIN, 0, 5)).clear()).is_empty()
