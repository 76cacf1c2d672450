"""The training job that is simulated: forward and backward pass, collectives, optimizer step."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from jarvis.hardware import HardwareSpec
from jarvis.sample.autograd import Session
from jarvis.sample.faults import HOST, LOADER, NO_FAULTS, Faults
from jarvis.sample.gpu import Gpu, Work
from jarvis.sample.model import SCALES, build_model
from jarvis.sample.network import Group, Instance, Member, Network, Running
from jarvis.sample.pointwise import elementwise
from jarvis.sample.recorder import Collective
from jarvis.sample.tensors import BF16, INT64, SampleTensor, TensorList

BUCKET_BYTES = 25 << 20
"""Gradients are exchanged in buckets of this size, as DistributedDataParallel does by default."""

_APPLY = "void at::native::(anonymous namespace)::multi_tensor_apply_kernel"
_TENSORS_PER_LAUNCH = 24


def copy_to_device(s: Session, batch: SampleTensor) -> None:
    """Copy one input from pinned host memory, without waiting."""
    with (
        s.op("aten::to", batch, None, None, True, False, None),
        s.op("aten::_to_copy", batch, None, None, None, None, True, None),
        s.op("aten::copy_", batch, batch, True),
    ):
        s.copy("HtoD", batch.nbytes)


def item(s: Session, scalar: SampleTensor) -> None:
    """Read a number on the host, which waits for all previous GPU work."""
    with s.op("aten::item", scalar), s.op("aten::_local_scalar_dense", scalar):
        s.copy("DtoH", scalar.nbytes, wait=True)


def cross_entropy(s: Session, logits: SampleTensor, labels: SampleTensor) -> SampleTensor:
    """Record the mean cross entropy of logits (T, V) against labels (T)."""
    loss = SampleTensor((), BF16)
    kernel = "void at::native::(anonymous namespace)::"
    rows = logits.shape[0]
    total = SampleTensor(())

    def launch(name: str, passes: int) -> None:
        work = Work("softmax", 5 * logits.numel, passes * logits.nbytes)
        s.launch(f"{kernel}{name}<4, {BF16}, float, {BF16}>", work, rows, 512)

    def log_softmax_backward() -> None:
        with s.op("aten::_log_softmax_backward_data", logits, logits, 1, 15):
            launch("cunn_SoftMaxBackward", 3)

    def nll_backward() -> None:
        with s.op("aten::nll_loss_backward", loss, logits, labels, None, 1, -100, total):
            s.fill(logits.nbytes)
            work = Work("gather", 0, 2 * labels.nbytes)
            s.launch(f"{kernel}nll_loss_backward_reduce_cuda_kernel_2d<{BF16}>", work, 1)

    with s.grad_op("aten::cross_entropy_loss", logits, labels, None, 1, -100, 0.0):
        with (
            s.grad_op("aten::log_softmax", logits, 1, None),
            s.grad_op("aten::_log_softmax", logits, 1, False) as op,
        ):
            launch("cunn_SoftMaxForward", 2)
            s.node(op, "LogSoftmaxBackward0", logits, log_softmax_backward)
        with (
            s.grad_op("aten::nll_loss_nd", logits, labels, None, 1, -100),
            s.grad_op("aten::nll_loss_forward", logits, labels, None, 1, -100) as op,
        ):
            work = Work("reduce", rows, rows * (2 + 8))
            s.launch(f"{kernel}nll_loss_forward_reduce_cuda_kernel_2d<{BF16}>", work, 1)
            s.node(op, "NllLossBackward0", loss, nll_backward)
    return loss


@dataclass(slots=True)
class Reducer:
    """Collects gradients in buckets and sums each full bucket over the ranks of a group, if there
    are several."""

    session: Session
    member: Member | None
    waiting: list[SampleTensor] = field(default_factory=list)
    launched: list[Collective] = field(default_factory=list)

    def add(self, parameter: SampleTensor) -> None:
        """Add one gradient; a full bucket is reduced immediately."""
        if self.member is None:
            return
        flat, ranks = parameter.view(parameter.numel), len(self.member.group.ranks)
        elementwise(self.session, "aten::mul", "scale", flat, 1 / ranks, flat, write=flat)
        self.waiting.append(parameter)
        if sum(tensor.nbytes for tensor in self.waiting) >= BUCKET_BYTES:
            self._reduce()

    def flush(self) -> list[Collective]:
        """Reduce the incomplete bucket, and return all since the last call."""
        self._reduce()
        launched, self.launched = self.launched, []
        return launched

    def _reduce(self) -> None:
        if self.waiting and self.member is not None:
            bucket = SampleTensor((sum(tensor.numel for tensor in self.waiting),))
            self.launched.append(self.member.all_reduce(bucket))
            self.waiting.clear()


def adamw(s: Session, parameters: list[SampleTensor], step: int) -> None:
    """Record AdamW over lists of tensors; each operator passes over every parameter."""
    tensors = TensorList()
    operators: tuple[tuple[str, str, int, tuple[Any, ...]], ...] = (
        ("aten::_foreach_mul_", "BinaryOpScalarFunctor", 2, (1 - 1e-6,)),
        ("aten::_foreach_lerp_", "TernaryOpScalarFunctor", 3, (tensors, 0.1)),
        ("aten::_foreach_mul_", "BinaryOpScalarFunctor", 2, (0.999,)),
        ("aten::_foreach_addcmul_", "PointwiseOpScalarFunctor", 4, (tensors, tensors, 0.001)),
        ("aten::_foreach_sqrt", "UnaryOpFunctor", 2, ()),
        ("aten::_foreach_div_", "BinaryOpScalarFunctor", 2, (1 - 0.999 ** (step + 1),)),
        ("aten::_foreach_add_", "BinaryOpScalarFunctor", 2, (1e-8,)),
        ("aten::_foreach_addcdiv_", "PointwiseOpScalarListFunctor", 4, (tensors, tensors, 1e-4)),
    )
    for name, functor, passes, arguments in operators:
        with s.op(name, tensors, *arguments):
            for first in range(0, len(parameters), _TENSORS_PER_LAUNCH):
                part = parameters[first : first + _TENSORS_PER_LAUNCH]
                elements = sum(tensor.numel for tensor in part)
                nbytes = passes * sum(tensor.nbytes for tensor in part)
                kernel = f"{_APPLY}<TensorListMetadata<{passes}>, {functor}<{BF16}, {passes}> >"
                s.launch(kernel, Work("optimizer", elements, nbytes), elements // 65536 + 1, 512)


def input_batch(
    batch: int, tokens: int, pixels: int
) -> tuple[SampleTensor, SampleTensor, SampleTensor]:
    """Return token ids (T), images (B, 3, Y, X) and labels (T) of one step."""
    return (
        SampleTensor((batch * tokens,), INT64),
        SampleTensor((batch, 3, pixels, pixels)),
        SampleTensor((batch * tokens,), INT64),
    )


_FIRST_STEP = 10
RUN_BACKWARD = "<built-in method run_backward of torch._C._EngineBase object>"


COLLECTIVE_STREAM = 4


def all_ranks(world_size: int) -> Group:
    """Return the process group of all ranks."""
    return Group("dp", "0", "default_pg", tuple(range(world_size)), COLLECTIVE_STREAM)


class Process:
    """One rank that trains the model of the sample."""

    def __init__(
        self,
        spec: HardwareSpec,
        rank: int,
        world_size: int,
        seed: int,
        scale: str,
        faults: Faults = NO_FAULTS,
    ) -> None:
        slowdown = {each.family: each.factor for each in faults.slow if each.rank == rank}
        gpu = Gpu(spec, seed, slowdown)
        self.spec, self.rank, self.faults = spec, rank, faults
        self.session = Session(gpu, rank, seed, is_even=faults.is_even)
        self.late = [each for each in faults.late if each.rank == rank]
        self.world_size, self.size = world_size, SCALES[scale]
        self._build()

    def _build(self) -> None:
        """Build the model."""
        size = self.size
        self.model, self.parameters = build_model(size)
        self.inputs: tuple[SampleTensor, ...] = input_batch(size.batch, size.tokens, size.pixels)
        several = self.world_size > 1
        self.groups = [all_ranks(self.world_size)] if several else []
        self.reducer = Reducer(self.session, self._member(self.groups[0]) if several else None)

    def _member(self, group: Group) -> Member:
        faults = self.faults
        return Member(self.session, self.rank, group, faults.has_metadata, faults.has_seq)

    def train(self, steps: int) -> Running:
        """Run the steps."""
        s = self.session
        with s.frame("train.py(141): <module>"), s.frame("train.py(118): main"):
            for step in range(steps):
                name = f"ProfilerStep#{_FIRST_STEP + step}"
                with s.annotation(name), s.frame("train.py(76): train_step"):
                    yield from self._train_step(step)
                yield None
            s.synchronize()

    def _train_step(self, step: int) -> Running:
        s = self.session
        self._load(step)
        ids, images, labels = self.inputs
        with self._data_parallel():
            logits = self.model(s, ids, images)
        with s.frame("torch/nn/functional.py(3495): cross_entropy"):
            loss = cross_entropy(s, logits, labels)
        self._lose(step, HOST)
        with s.frame("torch/_tensor.py(630): backward"), s.frame(RUN_BACKWARD):
            s.backward(self.reducer.add)
            reduced = self.reducer.flush()
            yield reduced
            s.wait_for(reduced)
        self._optimize(step)
        with s.frame("train.py(70): log_loss"):
            item(s, loss)

    def _load(self, step: int) -> None:
        """Wait for a batch, and copy it to the GPU."""
        s = self.session
        with s.frame("torch/utils/data/dataloader.py(732): __next__"):
            s.pause(2_500, 7_000)
            self._lose(step, LOADER)
        for batch in self.inputs:
            copy_to_device(s, batch)

    def _optimize(self, step: int) -> None:
        s = self.session
        optimizer = "Optimizer.step#AdamW.step"
        with s.annotation(optimizer), s.frame("torch/optim/adamw.py(220): step"):
            adamw(s, self.parameters, step)

    def _lose(self, step: int, cause: str) -> None:
        """Lose the time of the faults in this step with this cause."""
        self.session.lose(
            sum(each.ms for each in self.late if (each.step, each.cause) == (step, cause))
        )

    def _data_parallel(self) -> ExitStack:
        frames = ExitStack()
        if self.world_size > 1:
            frames.enter_context(self.session.annotation("DistributedDataParallel.forward"))
            frames.enter_context(self.session.frame("nn.Module: DistributedDataParallel_0"))
        return frames


def simulate_steps(
    processes: Sequence[Process], steps: int, links: Mapping[int, float] = NO_FAULTS.slow_links
) -> Iterator[list[Instance]]:
    """Run the processes step by step, and at last what ends after the steps.

    Yields the collectives of each step; ``take_events`` of the sessions gives the events.

    Args:
        processes: The processes by rank.
        steps: Number of steps.
        links: The share of its bandwidth that the link of a rank has left.
    """
    running = [process.train(steps) for process in processes]
    network = Network([process.session for process in processes], links)
    for _ in range(steps):
        yield network.run_step(running)
    for steps_of_rank in running:
        next(steps_of_rank, None)
    yield []
