"""FLOPs per element of elementwise ops: the one table that our own formulas count with.

Add, multiply, compare, round: 1. Root, reciprocal, power: 2. Exponential, logarithm, trigonometric,
hyperbolic and error function: 4. What is made of them costs their sum, such as
hardswish(x) = x clamp(x + 3, 0, 6) / 6: 5. Moving data costs nothing.
"""

_NAMES = {
    0: """
        where masked_fill clone copy _to_copy cat stack embedding index gather index_select fill
        zero
    """,
    1: """
        abs neg sign floor ceil round trunc frac add sub rsub mul div maximum minimum fmax fmin
        square relu threshold threshold_backward clamp_min clamp_max
        eq ne lt le gt ge isnan isinf isfinite logical_and logical_or logical_xor logical_not
        mean sum amax amin max min argmax argmin any all prod
    """,
    2: """
        clamp hardtanh hardtanh_backward leaky_relu leaky_relu_backward _prelu_kernel
        _prelu_kernel_backward hardshrink hardshrink_backward softshrink softshrink_backward
        sqrt rsqrt reciprocal pow var floor_divide norm
    """,
    3: """
        addcmul addcdiv lerp nan_to_num tanh_backward sigmoid_backward logit_backward
        hardsigmoid_backward
    """,
    4: """
        exp exp2 expm1 log log2 log10 log1p erf erfc erfinv sin cos tan asin acos atan atan2 sinh
        cosh tanh sigmoid silu remainder fmod hardsigmoid
    """,
    5: "_softmax _log_softmax xlogy hardswish hardswish_backward glu",
    6: "elu elu_backward logit",
    8: "gelu softplus softplus_backward log_sigmoid_backward",
    9: "silu_backward glu_backward",  # the sigmoid; g s (1 + x (1 - s))
    10: "log_sigmoid_forward",
    13: "mish",  # x tanh(softplus(x))
    16: "gelu_backward",
    22: "mish_backward",
}

FLOPS_PER_ELEMENT: dict[str, int] = {
    name: flops for flops, names in _NAMES.items() for name in names.split()
}
"""FLOPs per output element, by op name without namespace and without the mark of in-place ops."""


def element_flops(name: str) -> int:
    """FLOPs per element of an op such as ``"aten::lerp_"``; KeyError if the table lacks it."""
    return FLOPS_PER_ELEMENT[name.rpartition("::")[2].removesuffix("_")]
