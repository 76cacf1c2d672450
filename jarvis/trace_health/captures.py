"""Facts about the captures of replayed graphs."""

from collections.abc import Iterator

from jarvis.capture import MergedTrace
from jarvis.text.format import counted, percent
from jarvis.trace import Trace
from jarvis.trace_health.facts import Fact, Severity


def capture_facts(trace: Trace) -> Iterator[Fact]:
    """Yield how much of the replayed work has a captured call, if there are captures."""
    if not isinstance(trace, MergedTrace):
        return
    events = sum(match.replay.events.height for match in trace.matches)
    total = sum(sum(match.replay.replayed.durations_ns) for match in trace.matches)
    covered = sum(
        match.chosen.coverage * sum(match.replay.replayed.durations_ns)
        for match in trace.matches
        if match.chosen is not None
    )
    pct = 100 * covered / total if total else 0.0
    reasons = dict.fromkeys(match.reason for match in trace.matches if match.chosen is None)
    unverified = any(match.confidence == "unverified" for match in trace.matches)
    refused = sum(match.chosen is None for match in trace.matches)
    without = f" {counted(refused, 'graph launch')} without capture: {'; '.join(reasons)}."
    state = "have the operator and shapes of their capture"
    yield Fact(
        "graph_captures",
        "Replayed work with a captured call",
        f"{trace.links.height:,} of {counted(events, 'replayed GPU event')} "
        f"({percent(pct)} of their time) {state}.{without if refused else ''}",
        pct,
        "%",
        Severity.WARNING if refused or unverified else Severity.OK,
        "Other replayed kernels have no shapes." if refused else _doubt(unverified),
        "Pass the captures of all graphs that the trace replays." if refused else "",
    )


def _doubt(unverified: bool) -> str:
    return "Captured calls have no kernel names: shapes follow from their order only." * unverified
