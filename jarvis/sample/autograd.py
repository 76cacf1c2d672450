"""Automatic differentiation of the simulated process: forward operators run again backward."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from jarvis.sample.gpu import Gpu
from jarvis.sample.recorder import Event, Recorder
from jarvis.sample.tensors import SampleTensor

ParameterHook = Callable[[SampleTensor], None]


@dataclass(frozen=True, slots=True)
class Node:
    """One step of the backward pass; ``run`` executes it, ``parameters`` get a gradient."""

    name: str
    sequence: int
    gradient: SampleTensor
    run: Callable[[], None]
    parameters: tuple[SampleTensor, ...]


class Session(Recorder):
    """A recorder that stores the differentiable operators of the current step."""

    def __init__(self, gpu: Gpu, rank: int, seed: int, *, is_even: bool = False) -> None:
        super().__init__(gpu, rank, seed, is_even=is_even)
        self._sequence = 1
        self._nodes: list[Node] = []

    def grad_op(self, name: str, *inputs: Any) -> AbstractContextManager[Event]:
        """Record an operator above autograd: it carries the number of the next backward node."""
        return self.op(name, *inputs, Sequence_number=self._sequence, Fwd_thread_id=0)

    def node(
        self,
        op: Event,
        name: str,
        gradient: SampleTensor,
        run: Callable[[], None],
        parameters: tuple[SampleTensor, ...] = (),
    ) -> None:
        """Store how to differentiate ``op``, given the gradient of its output."""
        self._nodes.append(Node(name, self._sequence, gradient, run, parameters))
        self.flow("s", self._sequence, op)
        self._sequence += 1

    def view_node(
        self, op: Event, name: str, view: str, gradient: SampleTensor, *args: Any
    ) -> None:
        """Store a view, whose backward is the view ``aten::<view>`` of the gradient."""
        self.node(op, name, gradient, lambda: self._view(view, gradient, *args))

    def backward(self, on_gradient: ParameterHook) -> None:
        """Run the stored nodes, last first; ``on_gradient`` receives each parameter's gradient."""
        with self.on_autograd_thread():
            self.run_nodes(self.take_nodes(), on_gradient)

    def take_nodes(self) -> list[Node]:
        """Return the nodes that were stored since the last call."""
        taken, self._nodes = self._nodes, []
        return taken

    def run_nodes(self, nodes: list[Node], on_gradient: ParameterHook) -> None:
        """Run nodes, last first."""
        for node in reversed(nodes):
            self._run_node(node)
            for parameter in node.parameters:
                self._accumulate(parameter, on_gradient)

    def _run_node(self, node: Node) -> None:
        numbers = {"Sequence_number": node.sequence, "Fwd_thread_id": 1}
        with (
            self.op(f"autograd::engine::evaluate_function: {node.name}", **numbers),
            self.op(node.name, node.gradient, **numbers) as op,
        ):
            self.flow("f", node.sequence, op)
            node.run()

    def _accumulate(self, parameter: SampleTensor, on_gradient: ParameterHook) -> None:
        name = "torch::autograd::AccumulateGrad"
        with self.op(f"autograd::engine::evaluate_function: {name}"), self.op(name, parameter):
            with self.op("aten::detach", parameter):
                pass
            on_gradient(parameter)

    def _view(self, view: str, gradient: SampleTensor, *args: Any) -> None:
        with self.op(f"aten::{view}", gradient, *args):
            pass
