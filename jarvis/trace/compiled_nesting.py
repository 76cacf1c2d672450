"""Compiled version of ``nesting.nest``."""

from jarvis.trace import nesting
from jarvis.trace.jit import kernel, read_only, types

_IN = read_only(types.int64)
_OUT = types.int32[::1]

nest = kernel(
    types.int64(
        *(_IN, _IN, _IN, _IN, read_only(types.uint8), _IN),
        *(_OUT, _OUT, _OUT, _OUT, _OUT, _OUT, types.boolean[::1], _OUT),
    )
)(nesting.nest)
