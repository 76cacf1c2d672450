"""Step annotations of inference engines: requests, tokens and context lengths of a step.

A request in its context phase (prefill) or generation phase (decode) adds sq queries, which attend
to sk keys, those of its cache included. Attention costs follow from sums over the requests of a
phase: sq, sk, sq^2 and sq sk. Annotations with these sums are *detailed*.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

VLLM: Final = "vLLM"
SGLANG: Final = "SGLang"
ATOM: Final = "ATOM"


class StepKind(StrEnum):
    """What the requests of a step do."""

    PREFILL = "prefill"
    DECODE = "decode"
    MIXED = "mixed"
    DIFFUSION = "diffusion"


@dataclass(frozen=True, slots=True)
class Phase:
    """Sums over the requests of one phase: sq, sk, sq^2 and sq sk."""

    queries: int = 0
    keys: int = 0
    queries_squared: int = 0
    pairs: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStep:
    """One step as its annotation describes it; None: not in the annotation.

    ``context`` and ``generation`` are the sums of a detailed annotation. ``engine`` is the one
    whose form it has; SGLang also writes vLLM's detailed form. ``padded_requests`` is the batch to
    which an engine pads ``requests``, and ``resolution`` that of the generated ``pictures``.
    """

    engine: str | None = None
    kind: StepKind | None = None
    tokens: int | None = None
    requests: int | None = None
    context_requests: int | None = None
    context_tokens: int | None = None
    generation_requests: int | None = None
    generation_tokens: int | None = None
    context: Phase | None = None
    generation: Phase | None = None
    padded_requests: int | None = None
    pictures: int | None = None
    resolution: str | None = None


@dataclass(frozen=True, slots=True)
class CapturedBatch:
    """The batch of a graph that an engine captures, and the text behind it (``decode``)."""

    size: int
    text: str


_N = r"(\d{1,18})"  # sums of two fit into 64 bits
_SUMS = rf"\(sq{_N}sk{_N}sqsq{_N}sqsk{_N}\)"
_PAIR = re.compile(rf"(\w+)={_N}(?!\d)(?:/{_N}(?!\d))?")
_BODY = r"(?P<body>(?:=\[[^][]*\]|[^\]])*+)\]"  # a value can be a list
_CAPTURE = re.compile(rf"capture_{_N}_(.+)", re.DOTALL)
_NAMES = ("sq", "sk", "sqsq", "sqsk")


def _kind_of(context: int, generation: int) -> StepKind | None:
    """Return the kind of a step by the requests of its phases; None without requests."""
    if context:
        return StepKind.MIXED if generation else StepKind.PREFILL
    return StepKind.DECODE if generation else None


def _two_phases(match: re.Match[str]) -> EngineStep:
    _, *numbers = map(int, match.groups())
    context_requests, generation_requests = numbers[0], numbers[5]
    context, generation = Phase(*numbers[1:5]), Phase(*numbers[6:])
    return EngineStep(
        engine=VLLM,
        kind=_kind_of(context_requests, generation_requests),
        tokens=context.queries + generation.queries,
        requests=context_requests + generation_requests,
        context_requests=context_requests,
        context_tokens=context.queries,
        generation_requests=generation_requests,
        generation_tokens=generation.queries,
        context=context,
        generation=generation,
    )


def _two_token_counts(match: re.Match[str]) -> EngineStep:
    context_requests, context_tokens, generation_requests, generation_tokens = map(
        int, match.groups()
    )
    return EngineStep(
        engine=VLLM,
        kind=_kind_of(context_requests, generation_requests),
        tokens=context_tokens + generation_tokens,
        requests=context_requests + generation_requests,
        context_requests=context_requests,
        context_tokens=context_tokens,
        generation_requests=generation_requests,
        generation_tokens=generation_tokens,
    )


def _pairs(match: re.Match[str]) -> dict[str, int]:
    return {key: int(value) for key, value, _ in _PAIR.findall(match["body"])}


_MODES = {"EXTEND": StepKind.PREFILL, "DECODE": StepKind.DECODE, "MIXED": StepKind.MIXED}


def _marked(match: re.Match[str]) -> EngineStep:
    values, kind = _pairs(match), _MODES[match["mode"]]
    requests, tokens = values.get("bs"), values.get("toks")
    is_detailed = any(key.endswith("_sqsq") for key in values)
    context, generation = (
        Phase(*(values.get(f"{phase}_{name}", 0) for name in _NAMES)) if is_detailed else None
        for phase in "cg"
    )
    if kind is StepKind.DECODE and tokens is None:
        tokens = requests  # each request decodes one token
    of_tokens = _of_phases(kind, tokens, (None, None))
    if context is not None and generation is not None:
        of_tokens = context.queries, generation.queries
        tokens = context.queries + generation.queries
    of_requests = _of_phases(kind, requests, (values.get("c"), values.get("g")))
    return EngineStep(
        engine=SGLANG,
        kind=kind,
        tokens=tokens,
        requests=requests,
        context_requests=of_requests[0],
        context_tokens=of_tokens[0],
        generation_requests=of_requests[1],
        generation_tokens=of_tokens[1],
        context=context,
        generation=generation,
    )


def _of_phases(
    kind: StepKind, count: int | None, mixed: tuple[int | None, int | None]
) -> tuple[int | None, int | None]:
    """Return a count of a step for its context and its generation phase."""
    if kind is StepKind.MIXED:
        return mixed
    return (count, 0) if kind is StepKind.PREFILL else (0, count)


def _named_phase(match: re.Match[str]) -> EngineStep:
    values = _pairs(match)
    padded = {key: int(size) for key, _, size in _PAIR.findall(match["body"]) if size}
    is_prefill, requests, tokens = match["phase"] == "prefill", values.get("bs"), values.get("tok")
    others = values.get("d" if is_prefill else "p", 0)
    named = None if requests is None else max(requests - others, 0)
    is_detailed = "sqsq" in values and "sqsk" in values
    phase = Phase(*(values.get(name, 0) for name in ("tok", *_NAMES[1:]))) if is_detailed else None
    empty = Phase() if is_detailed else None
    # The tokens of the other phase are not known if it has requests.
    named_tokens, other_tokens = (None, None) if others else (tokens, 0)
    of_context, of_generation = (named, others), (named_tokens, other_tokens)
    context_requests, generation_requests = of_context if is_prefill else of_context[::-1]
    context_tokens, generation_tokens = of_generation if is_prefill else of_generation[::-1]
    return EngineStep(
        engine=ATOM,
        kind=StepKind.MIXED if others and named else StepKind(match["phase"]),
        tokens=tokens,
        requests=requests,
        context_requests=context_requests,
        context_tokens=context_tokens,
        generation_requests=generation_requests,
        generation_tokens=generation_tokens,
        context=phase if is_prefill else empty,
        generation=empty if is_prefill else phase,
        padded_requests=padded.get("bs"),
    )


def _diffusion(match: re.Match[str]) -> EngineStep:
    return EngineStep(
        kind=StepKind.DIFFUSION, pictures=int(match[1]), resolution=f"{match[2]}x{match[3]}"
    )


_GRAMMAR: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], EngineStep]], ...] = tuple(
    (re.compile(pattern), read)
    for pattern, read in (
        (rf"execute_{_N}_context_{_N}{_SUMS}_generation_{_N}{_SUMS}", _two_phases),
        (rf"execute_context_{_N}\({_N}\)_generation_{_N}\({_N}\)", _two_token_counts),
        (rf"step\[(?P<mode>EXTEND|DECODE|MIXED)\b{_BODY}", _marked),
        (rf"(?P<phase>prefill|decode)\[{_BODY}", _named_phase),
        (rf"execute_diffusion_{_N}_{_N}x{_N}", _diffusion),
    )
)


_BEGINNING = re.compile(r"execute_(?:\d+_)?context_|execute_diffusion_|(?:step|prefill|decode)\[")


def looks_like_step(annotation: str) -> bool:
    """Return whether an annotation begins like those of steps."""
    return _BEGINNING.match(annotation) is not None


def parse(annotation: str | None) -> EngineStep | None:
    """Return the step that an annotation describes, or None for an unknown format."""
    for pattern, read in _GRAMMAR:
        if match := pattern.match(annotation or ""):
            return read(match)
    return None


def captured_batch(annotation: str) -> CapturedBatch | None:
    """Return the batch of an annotation around the capture of a graph, or None for other text."""
    match = _CAPTURE.match(annotation)
    return CapturedBatch(int(match[1]), match[2]) if match else None
