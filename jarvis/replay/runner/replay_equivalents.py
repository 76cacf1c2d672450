"""Equivalents of operators that only some devices support: the same mathematics with other calls.

Their times do not represent the operator of the trace. Needs only torch.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch  # type: ignore[import-not-found]
from replay_arguments import Values  # type: ignore[import-not-found]

aten = torch.ops.aten
_ATTENTION, _CONVOLUTION = "aten::scaled_dot_product_attention", "aten::convolution"
_GRADIENT_OF_ATTENTION = f"the gradient of {_ATTENTION}"
_MIXED = {
    f"aten::native_{kind}_norm_backward": getattr(aten, f"native_{kind}_norm_backward")
    for kind in ("batch", "layer", "group")
}
_ACTIVATIONS = ("grad_out", "input")


def has_kernel(name: str, overload: str, device: str, values: Values) -> bool:
    """Return whether an operator of EQUIVALENTS runs natively on this device with these
    arguments."""
    if device == "cuda":
        is_amd = torch.version.hip is not None
        return not name.startswith("aten::cudnn_" if is_amd else "aten::miopen_")
    if name in _MIXED:
        # On a CPU the parameters and the saved statistics must be of one dtype.
        state = [x for key, x in values.items() if key not in _ACTIVATIONS and torch.is_tensor(x)]
        return len({x.dtype for x in state}) == 1
    full_name = f"{name}.{overload}" if overload else name
    return bool(torch._C._dispatch_has_computed_kernel_for_dispatch_key(full_name, "CPU"))


def _attend(values: Values, query: Any, key: Any, value: Any) -> Any:
    """Return attention over [.., heads, sequence, channels]."""
    return torch.nn.functional.scaled_dot_product_attention(
        query,
        key,
        value,
        values.get("attn_bias", values.get("bias")),
        values.get("dropout_p") or 0.0,
        bool(values.get("is_causal") or values.get("custom_mask_type")),
        scale=values.get("scale"),
        enable_gqa=query.shape[-3] != key.shape[-3],
    )


def _attend_by_sequence(values: Values, query: Any, key: Any, value: Any) -> Any:
    """Return attention over [.., sequence, heads, channels], with offsets per piece."""
    starts = [values.get(a, values.get(b)) for a, b in _STARTS]
    if starts[0] is None or starts[1] is None:
        cut = [(query, key, value)]
    else:
        sizes = [s.diff().tolist() for s in starts]
        along = query.dim() - 3
        pieces = [x.split(sizes[i], along) for x, i in ((query, 0), (key, 1), (value, 1))]
        cut = list(zip(*pieces, strict=True))
    done = [_attend(values, *(x.transpose(-3, -2) for x in one)).transpose(-3, -2) for one in cut]
    return torch.cat(done, query.dim() - 3) if len(done) > 1 else done[0]


_STARTS = (("cum_seq_q", "cu_seqlens_q"), ("cum_seq_k", "cu_seqlens_k"))
_Attend = Callable[[Values, Any, Any, Any], Any]


def _attention(attend: _Attend, values: Values) -> Any:
    return attend(values, values["query"], values["key"], values["value"])


def _attention_backward(attend: _Attend, values: Values) -> Any:
    given = values.get("grad_out", values.get("grad_out_"))
    inputs = [values[name] for name in ("query", "key", "value")]
    return _gradient(partial(attend, values), inputs, given)


def _gradient(function: Callable[..., Any], inputs: list[Any], given: Any) -> Any:
    with torch.enable_grad():
        leaves = [x.detach().requires_grad_() for x in inputs]
        out = function(*leaves)
        return torch.autograd.grad(out, leaves, given.to(out.dtype).reshape(out.shape))


def _rms_norm_backward(values: Values) -> Any:
    inputs = [values["input"], *filter(lambda w: w is not None, [values.get("weight")])]
    norm = partial(_rms_norm, values["normalized_shape"])
    return _gradient(norm, inputs, values["grad_out"])


def _rms_norm(shape: list[int], x: Any, weight: Any = None) -> Any:
    return torch.rms_norm(x, shape, weight)


def _batch_norm(values: Values) -> Any:
    return aten.native_batch_norm(
        values["input"],
        values["weight"],
        values["bias"],
        values["running_mean"],
        values["running_var"],
        values["training"],
        values["exponential_average_factor"],
        values["epsilon"],
    )


def _batch_norm_backward(values: Values) -> Any:
    return aten.native_batch_norm_backward(
        values["grad_output"],
        values["input"],
        values["weight"],
        values["running_mean"],
        values["running_var"],
        values["save_mean"],
        values["save_var"],
        True,
        values["epsilon"],
        [True, True, True],
    )


def _convolution(values: Values, *, is_transposed: bool = False) -> Any:
    x, weight = values["self"], values["weight"]
    nothing = [0] * (x.dim() - 2)
    return aten.convolution(
        x,
        weight,
        values.get("bias"),
        values["stride"],
        values["padding"],
        values["dilation"],
        is_transposed,
        values.get("output_padding", nothing),
        values.get("groups", x.shape[1]),
    )


def _convolution_relu(values: Values) -> Any:
    return torch.relu(_convolution(values))


def _widened(operator: Any, values: Values) -> Any:
    """Call the operator itself with every floating-point tensor in float32."""
    wide = [x.float() if torch.is_tensor(x) else x for x in values.values()]
    return operator(*wide)


def _dropout(values: Values) -> Any:
    return aten.native_dropout(values["self"], 1.0 - values["p"], True)


EQUIVALENTS: dict[str, tuple[str, Callable[[Values], Any]]] = {
    **{
        f"aten::_scaled_dot_product_{kind}_attention{direction}": (name, partial(call, _attend))
        for kind in ("flash", "efficient", "cudnn")
        for direction, name, call in (
            ("", _ATTENTION, _attention),
            ("_backward", _GRADIENT_OF_ATTENTION, _attention_backward),
        )
    },
    **{
        f"aten::_{kind}_attention_{direction}": (name, partial(call, _attend_by_sequence))
        for kind in ("flash", "efficient")
        for direction, name, call in (
            ("forward", _ATTENTION, _attention),
            ("backward", _GRADIENT_OF_ATTENTION, _attention_backward),
        )
    },
    **{
        f"aten::{vendor}_{kind}": (name, call)
        for vendor in ("cudnn", "miopen")
        for kind, name, call in (
            ("batch_norm", "aten::native_batch_norm", _batch_norm),
            ("batch_norm_backward", "aten::native_batch_norm_backward", _batch_norm_backward),
            ("convolution", _CONVOLUTION, _convolution),
            ("convolution_transpose", _CONVOLUTION, partial(_convolution, is_transposed=True)),
            ("convolution_relu", f"{_CONVOLUTION} and aten::relu", _convolution_relu),
        )
    },
    **{
        name: (f"{name} in float32", partial(_widened, operator))
        for name, operator in _MIXED.items()
    },
    "aten::miopen_depthwise_convolution": (_CONVOLUTION, _convolution),
    "aten::_conv_depthwise2d": (_CONVOLUTION, _convolution),
    "aten::conv_depthwise3d": (_CONVOLUTION, _convolution),
    "aten::_fused_rms_norm_backward": ("the gradient of aten::rms_norm", _rms_norm_backward),
    "aten::_fused_dropout": ("aten::native_dropout", _dropout),
}
"""Operator -> the name of its equivalent, and a function that calls it with the operator's
arguments."""
