"""A stand-in for torch that holds what the replay program uses; tests put it on the path as torch.

``CALLS`` lists every operator call as (name, args, kwargs).
"""

import contextlib
import types

CALLS = []
float32, bfloat16, int64, bool = "float32", "bfloat16", "int64", "bool"
__version__ = "0"


class Tensor:
    def __init__(self, size, dtype, shape=None, strides=None, high=None):
        self.size, self.dtype, self.high = size, dtype, high
        self.shape, self.strides = shape, strides

    def to(self, dtype):
        return Tensor(self.size, dtype, high=self.high)


def empty(size, dtype, device):
    return Tensor(size, dtype)


def randn(size, dtype, device):
    return Tensor(size, dtype)


def randint(low, high, size, device):
    return Tensor(size[0], int64, high=high)


def as_strided(flat, shape, strides):
    last = sum((n - 1) * step for n, step in zip(shape, strides, strict=True))
    if flat.size and last >= flat.size:
        raise RuntimeError("out of bounds")
    return Tensor(flat.size, flat.dtype, shape, strides, flat.high)


@contextlib.contextmanager
def no_grad():
    yield


class Event:
    def __init__(self, enable_timing):
        assert enable_timing

    def record(self):
        self.at = len(CALLS)

    def elapsed_time(self, end):
        return (end.at - self.at) * 0.002  # each call takes 2 µs


class Namespace:
    def __getattr__(self, name):
        def operator(*args, **kwargs):
            if name == "softmax":
                raise RuntimeError("no such kernel")
            CALLS.append((name, args, kwargs))

        return operator


ops = types.SimpleNamespace(aten=Namespace())
version = types.SimpleNamespace(hip=None)
cuda = types.SimpleNamespace(
    is_available=lambda: True,
    synchronize=lambda: None,
    Event=Event,
    get_device_name=lambda: "Fake GPU",
)
