"""Short names of kernels and Python frames for labels; full names stay available beside them."""

import re

SYNTHETIC_END = " (Synthetic Op)"
LAUNCHED = "->"
"""Separates launcher and kernel in the name of work without an operator."""

SYNTHETIC = "{}" + LAUNCHED + "{}" + SYNTHETIC_END
"""Name of a row for one GPU event: the call that launched it, and the event."""

_ANONYMOUS = re.compile(r"\(anonymous namespace\)::|\{anonymous\}::|<unnamed>::")
_QUALIFIED = re.compile(r"[A-Za-z_~]\w*(?:::[A-Za-z_~]\w*)*")
_MANGLED_PART = re.compile(r"\d+")
_TENSILE = re.compile(r"(Cijk_[A-Za-z]+_[A-Za-z]+_[A-Z0-9]+).*?_(MT\d+x\d+x\d+)")
_COPY = re.compile(r"(Memcpy \w+) \((?:Host|Device) -> (?:Host|Device)\)")
"""A copy whose memory kinds its first words have already."""

_NAMESPACES = re.compile(r"(?:[A-Za-z_][\w.]*::)+(?=\w)")
"""Namespaces in front of the name of an operator; those of PyTorch's own code can have dots."""

_FRAME = re.compile(r"(?:.*[/\\])?([^/\\]+)\((\d+)\): (.+)")
_BUILT_IN = re.compile(r"<built-in (?:method|function) (\S+?)(?: of .*)?>")

_GENERIC = re.compile(
    r"(?:\w*elementwise_kernel\w*|reduce_kernel|multi_tensor_apply_kernel|[Kk]ernel\d?|device_kernel)"
)
"""Kernels that only their template arguments distinguish."""

_NOISE = re.compile(
    r"(?:gpu_kernel_impl\w*|ReduceOp|func_wrapper_t|[AB]?UnaryFunctor|BinaryFunctor|TensorListMetadata"
    r"|TensorListScalarListMetadata|FusedOptimizerTensorListMetadata|array|tuple|OpaqueType|Array"
    r"|BFloat16|Half|float|double|half|bool|char|short|int|long|unsigned|signed|const|true|false|void"
    r"|u?int\d+_t|__\w+|at|native|c10|std|lambda|operator|T\d?|enable_if)"
)
"""Template arguments that do not distinguish kernels: wrappers, data types, and namespaces at the
end of a cut name."""


def short_kernel_name(name: str) -> str:
    """Return the distinguishing part of a kernel name, without types, namespaces and arguments."""
    if copy := _COPY.fullmatch(name):
        return copy[1]
    if tile := _TENSILE.match(name):
        return f"{tile[1]} {tile[2]}"
    if name.startswith("_Z"):
        return _unmangled(name) or name
    plain = _ANONYMOUS.sub("", name).removeprefix("void ")
    outer = _QUALIFIED.match(plain)
    if outer is None or plain[outer.end() : outer.end() + 1] not in ("<", "("):
        return name
    base = _last(outer[0])
    if not _GENERIC.fullmatch(base):
        return base
    parts = (_last(found) for found in _QUALIFIED.findall(plain[outer.end() :]))
    detail = next((part for part in parts if not _NOISE.fullmatch(part)), None)
    return base if detail is None else detail


def kernel_without_operator(name: str) -> str | None:
    """Return the kernel in the name of a row without an operator; None for other rows."""
    _, arrow, kernel = name.partition(LAUNCHED)
    return kernel.removesuffix(SYNTHETIC_END) if arrow and name.endswith(SYNTHETIC_END) else None


def without_namespaces(name: str) -> str:
    """Return the name of an operator without the namespaces in front of it."""
    spaces = _NAMESPACES.match(name)
    return name[spaces.end() :] if spaces else name


def short_operation_name(name: str) -> str:
    """Return the name of an operator without namespaces, or the short one of a kernel."""
    if "::" in name and _QUALIFIED.fullmatch(name):
        return _last(name)
    return short_kernel_name(kernel_without_operator(name) or name)


def short_frame_name(name: str) -> str:
    """Return function, file and line of a Python frame, without folders and addresses."""
    if frame := _FRAME.fullmatch(name):
        return f"{frame[3]} ({frame[1]}:{frame[2]})"
    if built_in := _BUILT_IN.fullmatch(name):
        return built_in[1]
    return name


def _last(qualified: str) -> str:
    return qualified.rpartition("::")[2]


def _unmangled(name: str) -> str | None:
    """Return the innermost name of a mangled C++ function; None if it is not mangled so."""
    at = 3 if name.startswith("_ZN") else 2
    last = None
    while number := _MANGLED_PART.match(name, at):
        end = number.end() + int(number[0])
        last, at = name[number.end() : end], end
    return last or None
