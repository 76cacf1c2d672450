"""Step annotations of inference engines: number of tokens per step, and their context lengths.

A request in its context phase (prefill) or generation phase (decode) adds sq queries, which attend
to sk keys. Attention costs follow from sums over the requests of a phase: sq, sk, sq^2 and sq sk.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Phase:
    """Sums over the requests of one phase: sq, sk, sq^2 and sq sk."""

    queries: int = 0
    keys: int = 0
    queries_squared: int = 0
    pairs: int = 0


@dataclass(frozen=True, slots=True)
class StepTokens:
    """One step: tokens in both phases, and the sums per phase; None: not in the annotation."""

    tokens: int | None = None
    context: Phase | None = None
    generation: Phase | None = None


_SUMS = r"\(sq(\d+)sk(\d+)sqsq(\d+)sqsk(\d+)\)"
_PAIR = re.compile(r"(\w+)=(\d+)")


def _detailed(context: Phase, generation: Phase) -> StepTokens:
    return StepTokens(context.queries + generation.queries, context, generation)


def _two_phases(match: re.Match[str]) -> StepTokens:
    numbers = [int(number) for number in match.groups()]
    return _detailed(Phase(*numbers[:4]), Phase(*numbers[4:]))


def _two_token_counts(match: re.Match[str]) -> StepTokens:
    return StepTokens(int(match[1]) + int(match[2]))


def _pairs(match: re.Match[str]) -> dict[str, int]:
    return {key: int(value) for key, value in _PAIR.findall(match["body"])}


def _marked(match: re.Match[str]) -> StepTokens:
    values = _pairs(match)
    if not any(key.endswith("_sqsq") for key in values):
        # Each request decodes one token; how many the others have is not known.
        return StepTokens(
            values.get("toks", values.get("bs") if match["mode"] == "DECODE" else None)
        )
    phases = (
        Phase(*(values.get(f"{phase}_{name}", 0) for name in ("sq", "sk", "sqsq", "sqsk")))
        for phase in ("c", "g")
    )
    return _detailed(*phases)


def _named_phase(match: re.Match[str]) -> StepTokens:
    values = _pairs(match)
    if "sqsk" not in values:
        return StepTokens(values.get("tok"))
    phase = Phase(*(values.get(name, 0) for name in ("tok", "sk", "sqsq", "sqsk")))
    empty = Phase()
    return _detailed(phase, empty) if match["phase"] == "prefill" else _detailed(empty, phase)


def _diffusion(match: re.Match[str]) -> StepTokens:
    return StepTokens()


_GRAMMAR: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], StepTokens]], ...] = tuple(
    (re.compile(pattern), read)
    for pattern, read in (
        (rf"execute_\d+_context_\d+{_SUMS}_generation_\d+{_SUMS}", _two_phases),
        (r"execute_context_\d+\((\d+)\)_generation_\d+\((\d+)\)", _two_token_counts),
        (r"step\[(?P<mode>EXTEND|DECODE|MIXED)\b(?P<body>[^\]]*)\]", _marked),
        (r"(?P<phase>prefill|decode)\[(?P<body>[^\]]*)\]", _named_phase),
        (r"execute_diffusion_\d+_\d+x\d+", _diffusion),
    )
)


_BEGINNING = re.compile(r"execute_(?:\d+_)?context_|execute_diffusion_|(?:step|prefill|decode)\[")


def looks_like_step(annotation: str) -> bool:
    """Return whether an annotation begins like those of steps."""
    return _BEGINNING.match(annotation) is not None


def parse(annotation: str | None) -> StepTokens | None:
    """Return the step that an annotation describes, or None for an unknown format."""
    for pattern, read in _GRAMMAR:
        if match := pattern.match(annotation or ""):
            return read(match)
    return None
