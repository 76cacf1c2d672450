"""Colors of GPU work and host calls: the same on every page and in every run."""

from jarvis.charts.palette import Palette
from jarvis.perf_report.kernel_blocks import COMMUNICATION as COMMUNICATION_BLOCK
from jarvis.perf_report.kernel_blocks import OTHER, title_of
from jarvis.perf_report.work import COMMUNICATION, COPY
from jarvis.run.timeline import (
    BEFORE,
    HOST_LABELS,
    IDLE,
    KINDS,
    OTHER_WORK,
    Timeline,
)
from jarvis.run.timeline_events import HOST, LATENCY, NOT_LINKED
from jarvis.simulation.path import HOST_PARTS, OF_KINDS, UNLINKED_WORK


def category_color(key: str, palette: Palette) -> str:
    """Return the color of a category of operations by its key; gray for those of extensions."""
    hues = palette.categorical
    fixed = {
        "gemm": hues[0],
        "sdpa_fwd": hues[2],
        "convolution": hues[5],
        "elementwise": hues[4],
        **dict(zip(_FURTHER, palette.further, strict=True)),
    }
    return fixed.get(key, palette.muted)


_FURTHER = ("batchnorm", "reduce", "triton", "moe_fused", "communication_staging")


def work_colors(timeline: Timeline, palette: Palette) -> dict[str, str]:
    """Return the color of each kind of GPU work of a timeline: categories with most time first."""
    categories = {title: category_color(key, palette) for key, title in timeline.categories.items()}
    return categories | {
        OTHER_WORK: palette.muted,
        KINDS[COMMUNICATION]: palette.categorical[1],
        KINDS[COPY]: palette.categorical[3],
        NOT_LINKED: palette.faint,
        BEFORE: palette.border,
        IDLE: palette.pale,
        HOST: palette.categorical[6],
        LATENCY: palette.below_threshold,
    }


def path_color(part: str, palette: Palette) -> str:
    """Return the color of a part of the critical path by its name."""
    host, latency = palette.categorical[6], palette.below_threshold
    fixed = {
        COMMUNICATION: palette.categorical[1],
        COPY: palette.categorical[3],
        UNLINKED_WORK: palette.faint,
        **dict.fromkeys(HOST_PARTS, host),
        **dict.fromkeys(OF_KINDS.values(), latency),
    }
    return fixed.get(part) or category_color(part, palette)


def block_colors(palette: Palette) -> dict[str, str]:
    """Return the color of each block of a model by title: that of its category, if it has one."""
    hues, further, host = palette.categorical, palette.further, palette.host
    colors = {
        "gemm": category_color("gemm", palette),
        "attention": category_color("sdpa_fwd", palette),
        "moe_gemm": category_color("moe_fused", palette),
        "moe_route": further[4],
        "norm": category_color("batchnorm", palette),
        "activation": host[2],
        "rope": host[0],
        "kv_write": host[1],
        "quant": hues[6],
        "elementwise": category_color("elementwise", palette),
        "conv": category_color("convolution", palette),
        "copy": hues[3],
        COMMUNICATION_BLOCK: hues[1],
        "index": host[3],
        "sampler": category_color("reduce", palette),
        OTHER: palette.muted,
    }
    return {title_of(block): color for block, color in colors.items()}


def host_colors(palette: Palette) -> dict[str, str]:
    """Return the color of each kind of host call."""
    return dict(zip(HOST_LABELS.values(), palette.host, strict=True))
