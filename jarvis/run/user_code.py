"""Python frames of the interpreter around user code: module runners, threads, process starters."""

import polars as pl

from jarvis.run.lanes import stacked
from jarvis.schemas.names import C

_STARTERS = (
    r"^(?:<string>|<frozen [^>]*>"
    r"|(?:.*[/\\])?(?:threading|runpy|pdb|bdb|cProfile)\.py"
    r"|(?:.*[/\\])?(?:multiprocessing|concurrent[/\\]futures|importlib)[/\\].*\.py"
    r"|(?:.*[/\\])?torch[/\\](?:distributed[/\\](?:run|launch|launcher|elastic)|multiprocessing)\b.*\.py"
    r"|.*[/\\]bin[/\\][^/\\]+"
    r")\(\d+\): |^<built-in (?:method|function) exec\b"
)


def starter_frames(frames: pl.DataFrame) -> pl.Series:
    """Return the ``uid`` of the frames that start user code in a thread.

    They are the outermost frames of a thread as long as they are of the interpreter, of a process
    or thread starter, or of a launcher; what such modules do inside user code is not included.

    Args:
        frames: Python frames (``thread, uid, name, ts_ns, dur_ns``).
    """
    placed = stacked(
        frames.select(
            pl.col(C.thread).alias(C.row),
            C.uid,
            C.ts_ns,
            C.dur_ns,
            start=C.ts_ns,
            is_starter=pl.col(C.name).str.contains(_STARTERS),
        )
    ).with_columns(end=pl.col(C.ts_ns) + pl.col(C.dur_ns))
    starters = placed.filter("is_starter")
    found = level = starters.filter(pl.col("lane") == 0)
    while not level.is_empty():
        inner = starters.filter(pl.col("lane") == level["lane"][0] + 1).sort(C.ts_ns)
        outer = level.select(C.row, C.ts_ns, outer_end="end").sort(C.ts_ns)
        level = (
            inner.join_asof(
                outer, on=C.ts_ns, by=C.row, strategy="backward", check_sortedness=False
            )
            .filter(pl.col("end") <= pl.col("outer_end"))
            .drop("outer_end")
        )
        found = pl.concat([found, level])
    return found[C.uid]
