"""Checks of the wording of every report: vendor neutral, no unsupported claims."""

import re
from collections.abc import Iterator
from functools import lru_cache

from jarvis.validation.check import Check, Problem
from jarvis.validation.run_files import Json
from tests.layout.markdown import MAX_CACHED, own_words
from tests.layout.rendered import Rendered

VENDOR_WORDS = re.compile(
    r"\b(?:CUDA|HIP|NCCL|RCCL|cuBLAS\w*|hipBLAS\w*|rocBLAS|cuDNN|MIOpen|CUTLASS|Tensile|ROCm"
    r"|rocprof\w*|nsight|NVIDIA|AMD)\b",
    re.IGNORECASE,
)
CLAIMS = re.compile(r"bank conflict|coalesc|occupancy|cache hit|cache miss", re.IGNORECASE)
"""Terms for properties that only hardware counters show."""

FALLBACK = re.compile(r"hardware-counter", re.IGNORECASE)
"""Sentences that refer to hardware counters may use these terms."""

RANKING = re.compile(
    r"\b(?:winner|loser|outperforms?|(?:better|worse|superior|inferior) vendor)\b", re.IGNORECASE
)
PLACEHOLDER = re.compile(
    r"\{\{ ?[A-Za-z_].*?\}\}|<(?!br>|/?a\b|/?details|/?summary)[A-Za-z][\w -]*>|\bTBD\b"
)
SENTENCE_END = re.compile(r"[.;!?](?:\s|$)")

MIN_BYTES = 100
MAX_NON_ASCII_PCT = 50


def words_are_vendor_neutral(run: Rendered) -> Iterator[Problem]:
    """No vendor product is named outside quoted names, the device and its sources."""
    names = _given_names(run)
    for report in run.reports:
        for line, words in report.own_words:
            if _found(VENDOR_WORDS, words) and (
                found := VENDOR_WORDS.search(_without(names, words))
            ):
                text = f"{found[0]!r} is a vendor's word; neutral words or a quoted name expected."
                yield Problem(report.file, text, line)


def claims_are_what_a_trace_can_show(run: Rendered) -> Iterator[Problem]:
    """Bank conflicts, occupancy, cache hits and the like are named only with hardware counters."""
    for report in run.reports:
        for line, words in report.own_words:
            if not _found(CLAIMS, words):
                continue
            for sentence in SENTENCE_END.split(words):
                found = CLAIMS.search(sentence)
                if found and not FALLBACK.search(sentence):
                    text = (
                        f"{found[0]!r} cannot be seen in a trace; a sentence that points to a "
                        "hardware-counter profiler was expected."
                    )
                    yield Problem(report.file, text, line)


def nobody_wins(run: Rendered) -> Iterator[Problem]:
    """No report declares a winner or ranks vendors."""
    for report in run.reports:
        for line, words in report.own_words:
            if found := _found(RANKING, words):
                text = f"{found[0]!r} ranks; a measured difference was expected."
                yield Problem(report.file, text, line)


def placeholders_are_filled(run: Rendered) -> Iterator[Problem]:
    """No placeholder of a template is left, such as a title in angle brackets."""
    names = _given_names(run)
    for report in run.reports:
        for line in report.prose:
            if _found(PLACEHOLDER, line.text) and (
                found := PLACEHOLDER.search(_without(names, own_words(_unescaped(line.text))))
            ):
                text = f"The placeholder {found[0]!r} is not filled."
                yield Problem(report.file, text, line.number)


def reports_are_text(run: Rendered) -> Iterator[Problem]:
    """Every report is readable text: not empty, not raw JSON, mostly letters."""
    for report in run.reports:
        text = report.text.strip()
        size = len(text.encode())
        foreign = len(text) - len(text.encode("ascii", "ignore"))
        if size < MIN_BYTES:
            yield Problem(report.file, f"It has {size} bytes; at least {MIN_BYTES} expected.")
        elif text.startswith(("{", "[")):
            yield Problem(report.file, "It is raw data; Markdown was expected.", report.number)
        elif 100 * foreign >= MAX_NON_ASCII_PCT * len(text):
            share = f"{100 * foreign / len(text):.0f}%"
            limit = f"below {MAX_NON_ASCII_PCT}%"
            yield Problem(
                report.file, f"{share} of its characters are not ASCII; {limit} expected."
            )


@lru_cache(MAX_CACHED)
def _found(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    return pattern.search(text)


def _given_names(run: Rendered) -> list[str]:
    """Return names that reports quote from the trace, the user or a source of figures."""
    names = [
        name for side in (run.comparison or {}).get("sides", {}).values() for name in _of(side)
    ]
    if not run.is_comparison:
        names += _of({**run.manifest, **run.manifest["trace"], "hardware": run.hardware})
    return sorted(filter(None, names), key=len, reverse=True)


def _of(side: Json) -> list[str | None]:
    """Return the names of the input and its GPU."""
    hardware = side.get("hardware") or {}
    return [
        side.get("model_name"),
        side.get("label"),
        side.get("input"),
        side.get("file_name"),
        *side.get("device_names", ()),
        *hardware.get("aliases", ()),
        *(hardware.get("sources") or {}).values(),
    ]


def _without(names: list[str], text: str) -> str:
    for name in names:
        text = text.replace(" ".join(name.split()), "")
    return text


def _unescaped(text: str) -> str:
    """Return ``text`` without angle brackets that Markdown shows as characters."""
    return re.sub(r"\\[<>]", "", text)


CHECKS = (
    Check(words_are_vendor_neutral),
    Check(claims_are_what_a_trace_can_show),
    Check(nobody_wins),
    Check(placeholders_are_filled),
    Check(reports_are_text),
)
