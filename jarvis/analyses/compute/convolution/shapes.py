"""Kinds of convolutions, which determine the expected efficiency, from the call's parameters."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from jarvis.analyses.access import channel_order

SMALL_KERNEL = 3
"""The largest side of a small filter."""

TRANSPOSED, DEPTHWISE, POINTWISE, PATCHES = "transposed", "depthwise", "1x1", "patches"
DILATED, ASYMMETRIC, SMALL, LARGE = "dilated", "asymmetric", "3x3", "large filter"


@dataclass(frozen=True, slots=True)
class ConvolutionFacts:
    """Facts derived from the parameters of one call; None if the trace does not record them."""

    conv_type: str | None = None
    filter: str | None = None
    groups: int | None = None
    dilation: str | None = None
    layout: str | None = None
    channels: str | None = None
    pattern: str | None = None


def convolution_facts(params: Mapping[str, Any]) -> ConvolutionFacts:
    """Return the facts of a convolution from a perf model's parameters."""
    weight, groups = params.get("filter_shape"), params.get("groups")
    if not weight:
        return ConvolutionFacts()
    shape: list[int] = params.get("input_shape") or []
    dilation: list[int] = params.get("dilation") or []
    is_dilated = any(step != 1 for step in dilation)
    is_transposed = bool(params.get("transposed_conv"))
    channels_in, channels_out = weight[:2] if is_transposed else weight[1::-1]
    return ConvolutionFacts(
        conv_type=params.get("convNd"),
        filter=_sides(weight[2:]),
        groups=groups,
        dilation=_sides(dilation) if is_dilated else None,
        layout=channel_order(shape, params.get("input_stride") or []),
        channels=f"{channels_in:,} to {channels_out:,}",
        pattern=TRANSPOSED
        if is_transposed
        else _kind(weight[2:], groups, shape, params, is_dilated=is_dilated),
    )


def _kind(
    sides: Sequence[int],
    groups: int | None,
    shape: Sequence[int],
    params: Mapping[str, Any],
    *,
    is_dilated: bool,
) -> str:
    if groups and groups > 1 and len(shape) > 1 and groups == shape[1]:
        return DEPTHWISE
    if prod(sides) == 1:
        return POINTWISE
    if list(params.get("stride") or []) == list(sides) and not any(params.get("padding") or [0]):
        return PATCHES
    if is_dilated:
        return DILATED
    if len(set(sides)) > 1:
        return ASYMMETRIC
    return SMALL if max(sides) <= SMALL_KERNEL else LARGE


def _sides(sides: Sequence[int]) -> str:
    return "x".join(map(str, sides))
