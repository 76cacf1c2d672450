"""Create the arguments of a call from their description in a package. Needs only torch."""

from collections.abc import Iterator
from typing import Any

import torch  # type: ignore[import-not-found]

Values = dict[str, Any]
"""The arguments of a call by name."""


def arguments(ir: dict[str, Any], device: str) -> Values:
    """Return the arguments of a call by name, tensors created on the device."""
    return {item["arg_name"]: _argument(item, device) for item in described(ir)}


def described(ir: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the arguments of a call as the file describes them, by position and by keyword."""
    found: list[dict[str, Any]] = ir["list_pos_args"] + ir["list_kwargs"]
    return found


def _argument(item: dict[str, Any], device: str) -> Any:
    value = item["value"]
    if item["arg_type"] == "Device":
        return torch.device(device)
    if isinstance(value, dict):
        return tensor(value, device)
    if isinstance(value, list) and item["arg_type"].startswith("Tensor"):
        return [None if one is None else tensor(one, device) for one in value]
    if isinstance(value, str) and item["arg_type"] != "str":
        return float(value)  # infinity, which JSON lacks
    return value


def tensor(config: dict[str, Any], device: str) -> Any:
    """Return a tensor of the recorded shape, dtype and strides, which may overlap in memory."""
    dtype = getattr(torch, config["dtype"])
    return torch.as_strided(
        _filled(_storage_size(config), dtype, config, device), config["shape"], config["strides"]
    )


def _storage_size(config: dict[str, Any]) -> int:
    """Return the elements from the first to the last that a strided tensor reaches."""
    shape, strides = config["shape"], config["strides"]
    if not all(shape):
        return 0
    return 1 + sum(int((n - 1) * step) for n, step in zip(shape, strides, strict=True))


def _filled(size: int, dtype: Any, config: dict[str, Any], device: str) -> Any:
    init, name = config["init"], config["dtype"]
    if init is None:
        return torch.empty(size, dtype=dtype, device=device)
    if init == "integers":
        return torch.randint(config.get("low", 0), config["high"], (size,), device=device).to(dtype)
    if init in ("offsets", "ends"):
        pieces = max(1, size - 1 if init == "offsets" else size)
        first = 0 if init == "offsets" else 1
        cuts = [(first + i) * config["high"] // pieces for i in range(size)]
        return torch.tensor(cuts, dtype=dtype, device=device)
    if name in ("float8_e8m0fnu", "float4_e2m1fn_x2"):  # bits; not every device converts to them
        return torch.randint(120, 130, (size,), device=device).to(torch.uint8).view(dtype)
    if init == "uniform":
        return torch.rand(size, dtype=torch.float32, device=device).to(dtype)
    wide = torch.complex64 if name.startswith("complex") else torch.float32
    return torch.randn(size, dtype=wide, device=device).to(dtype)


def tensors(value: Any) -> Iterator[dict[str, Any]]:
    """Yield the tensors of an argument as the file describes them."""
    for one in value if isinstance(value, list) else [value]:
        if isinstance(one, dict):
            yield one


def size_bytes(config: dict[str, Any]) -> int:
    """Return the size of a tensor in bytes."""
    digits = "".join(c for c in config["dtype"].partition("_")[0] if c.isdigit())
    return _storage_size(config) * max(1, int(digits or 8) // 8)
