"""A job whose ranks are divided in several ways: tensor, pipeline, data and expert parallelism."""

import random
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields

from jarvis.core.errors import JarvisError
from jarvis.hardware import HardwareSpec
from jarvis.sample.autograd import Node, Session
from jarvis.sample.faults import HOST, NO_FAULTS, Faults
from jarvis.sample.model import (
    GELU,
    Attention,
    Build,
    Embedding,
    Layer,
    LayerNorm,
    Linear,
    Scale,
)
from jarvis.sample.network import Group, Running
from jarvis.sample.pointwise import add, elementwise
from jarvis.sample.recorder import Collective
from jarvis.sample.tensors import INT64, SampleTensor
from jarvis.sample.training import (
    COLLECTIVE_STREAM,
    RUN_BACKWARD,
    Process,
    Reducer,
    cross_entropy,
    item,
)

_DESCRIPTIONS = {
    "tp": "TENSOR_MODEL_PARALLEL_GROUP",
    "ep": "EXPERT_MODEL_PARALLEL_GROUP",
    "pp": "PIPELINE_MODEL_PARALLEL_GROUP",
    "edp": "EXPERT_DATA_PARALLEL_GROUP",
    "dp": "DATA_PARALLEL_GROUP",
}
_UNEVEN = 0.2
"""By how much the tokens that two ranks get from another one differ at most."""

Tape = list[list[Node] | Callable[[], Collective]]
"""What a micro-batch did, to be undone backward: nodes, and what is launched between them."""


@dataclass(frozen=True, slots=True)
class Parallel:
    """How ranks are divided: tensors by ``tp``, layers by ``pp``, batches by ``dp``, and experts by
    ``ep`` of the ranks of a stage. Neighbors differ in their tensors first, in their stage last.

    Raises:
        JarvisError: A number is less than 1, or the stages have no whole number of ``ep`` ranks.
    """

    tp: int = 1
    pp: int = 1
    dp: int = 1
    ep: int = 1

    def __post_init__(self) -> None:
        if min(asdict(self).values()) < 1 or self.stage_size % self.ep:
            raise JarvisError(
                "tp, pp, dp and ep have to be at least 1, and ep has to divide tp times dp."
            )

    @classmethod
    def of(cls, text: str) -> "Parallel":
        """Return the division of a text such as ``tp=2,pp=2``.

        Raises:
            JarvisError: It is none.
        """
        names = {field.name for field in fields(cls)}
        pairs = [part.partition("=") for part in text.split(",")]
        if not all(name in names and value.isdecimal() for name, _, value in pairs):
            raise JarvisError(f"{text!r} is no division of ranks such as tp=2,pp=2,dp=2,ep=4.")
        return cls(**{name: int(value) for name, _, value in pairs})

    @property
    def stage_size(self) -> int:
        """Ranks of a pipeline stage."""
        return self.tp * self.dp

    @property
    def world_size(self) -> int:
        """Ranks of the job."""
        return self.stage_size * self.pp

    @property
    def micro_batches(self) -> int:
        """Parts of a batch that follow each other through the stages."""
        return 2 * self.pp

    def stage(self, rank: int) -> int:
        """Return the pipeline stage of a rank."""
        return rank // self.stage_size

    def groups(self, rank: int) -> dict[str, Group]:
        """Return the process groups of a rank that have several ranks, by role."""
        first = self.stage(rank) * self.stage_size
        stage = range(first, first + self.stage_size)
        place = rank - first
        in_block = place - place % self.ep
        ranks = {
            "dp": stage[place % self.tp :: self.tp],
            "tp": stage[place - place % self.tp :][: self.tp],
            "ep": stage[in_block : in_block + self.ep],
            "edp": stage[place % self.ep :: self.ep],
            "pp": range(place, self.world_size, self.stage_size),
            "world": range(self.world_size),
        }
        return {
            role: Group(
                role,
                "0" if role == "world" else role,
                _DESCRIPTIONS.get(role, "default_pg"),
                tuple(members),
                COLLECTIVE_STREAM + 4 * number,
            )
            for number, (role, members) in enumerate(ranks.items())
            if len(members) > 1
        }


class AttentionPart(Layer):
    """The heads of one rank, with the normalization before them."""

    source = "model.py(97)"

    def __init__(self, build: Build, size: Scale, shards: int) -> None:
        super().__init__(build)
        self.norm = LayerNorm(build, size.hidden)
        self.attention = Attention(build, size, fused=True, shards=shards)

    def forward(self, s: Session, tensor: SampleTensor) -> SampleTensor:
        """Record the normalization and the attention."""
        return self.attention(s, self.norm(s, tensor))


class FeedForward(Layer):
    """The part of a feed-forward layer, or of the experts, that one rank has."""

    source = "model.py(120)"

    def __init__(self, build: Build, hidden: int, width: int) -> None:
        super().__init__(build)
        self.up, self.gelu = Linear(build, hidden, width), GELU(build)
        self.down = Linear(build, width, hidden)

    def forward(self, s: Session, tensor: SampleTensor) -> SampleTensor:
        """Record two products."""
        return self.down(s, self.gelu(s, self.up(s, tensor)))


class Stage(Process):
    """One rank of a job that is divided in several ways.

    Micro-batches go forward and backward by turns, as soon as the stage has filled the stages after
    it.
    """

    def __init__(
        self,
        spec: HardwareSpec,
        rank: int,
        division: Parallel,
        seed: int,
        scale: str,
        faults: Faults = NO_FAULTS,
    ) -> None:
        self.division, self.seed = division, seed
        super().__init__(spec, rank, division.world_size, seed, scale, faults)

    def _build(self) -> None:
        division, size, build = self.division, self.size, Build()
        groups = division.groups(self.rank)
        self.groups = list(groups.values())
        self.members = {role: self._member(group) for role, group in groups.items()}
        self.stage = division.stage(self.rank)
        self.is_last = self.stage == division.pp - 1
        rows = size.batch * size.tokens
        self.activation = SampleTensor((rows, size.hidden))
        self.ids = SampleTensor((rows,), INT64)
        self.inputs = (self.ids, self.ids)
        self.embedding = Embedding(build, size.vocabulary, size.hidden)
        width = 4 * size.hidden // division.tp
        self.layers = [
            (AttentionPart(build, size, division.tp), FeedForward(build, size.hidden, width))
            for _ in range(size.blocks + 1)
        ]
        self.head = Linear(build, size.hidden, size.vocabulary // division.tp)
        self.parameters = build.parameters
        of_experts = (layer for _, layer in self.layers) if division.ep > 1 else ()
        self._of_experts = {
            id(parameter)
            for layer in of_experts
            for linear in (layer.up, layer.down)
            for parameter in (linear.weight, linear.bias)
        }
        self.reducer = Reducer(self.session, self.members.get("dp"))
        self.expert_reducer = Reducer(self.session, self.members.get("edp"))

    def _train_step(self, step: int) -> Running:
        s, micro_batches = self.session, self.division.micro_batches
        self._load(step)
        ahead = min(self.division.pp - 1 - self.stage, micro_batches)
        tapes: deque[Tape] = deque()
        for number in range(micro_batches + ahead):
            if number < micro_batches:
                tapes.append([])
                yield from self._forward(f"{self.seed} {step} {number}", tapes[-1])
            if number >= ahead:
                is_final = number == micro_batches + ahead - 1
                if is_final:
                    self._lose(step, HOST)
                yield from self._backward(tapes.popleft(), is_final=is_final)
        reduced = [*self.reducer.flush(), *self.expert_reducer.flush()]
        yield reduced
        s.wait_for(reduced)
        norm = SampleTensor(())
        if "world" in self.members:
            yield from self._waited(self.members["world"].all_reduce(norm))
        self._optimize(step)
        with s.frame("train.py(70): log_loss"):
            item(s, norm)

    def _waited(self, launched: Collective) -> Running:
        yield [launched]
        self.session.wait_for([launched])

    def _forward(self, key: str, tape: Tape) -> Running:
        """Run a micro-batch forward, and append what it did to its tape."""
        s, tokens = self.session, self.activation
        if self.stage:
            source = self.rank - self.division.stage_size
            yield from self._waited(self.members["pp"].receive(tokens, source))
        else:
            self.embedding(s, self.ids)
        for number, (attention, layer) in enumerate(self.layers):
            yield from self._sharded(attention, tape)
            add(s, tokens, tokens)
            if "ep" in self.members:
                yield from self._routed(layer, f"{key} {number}", tape)
            else:
                yield from self._sharded(layer, tape)
            add(s, tokens, tokens)
        if self.is_last:
            cross_entropy(s, self.head(s, tokens), self.ids)
        tape.append(s.take_nodes())
        if not self.is_last:
            self.members["pp"].send(tokens, self.rank + self.division.stage_size)

    def _sharded(self, layer: Layer, tape: Tape) -> Running:
        """Run a layer whose results are summed over the ranks with parts of its tensors, and whose
        gradients are, too."""
        s, tokens, member = self.session, self.activation, self.members.get("tp")
        if member is None:
            layer(s, tokens)
            return
        tape += [s.take_nodes(), lambda: member.all_reduce(tokens)]
        layer(s, tokens)
        yield from self._waited(member.all_reduce(tokens))

    def _routed(self, experts: Layer, key: str, tape: Tape) -> Running:
        """Send tokens to the ranks of their experts, and back."""
        s, member, width = self.session, self.members["ep"], self.activation.shape[1]
        sent, received = self._routes(key, member.group)
        tape += [s.take_nodes(), lambda: member.all_to_all(width, received, sent)]
        yield from self._waited(member.all_to_all(width, sent, received))
        experts(s, SampleTensor((sum(received), width)))
        tape += [s.take_nodes(), lambda: member.all_to_all(width, sent, received)]
        yield from self._waited(member.all_to_all(width, received, sent))

    def _routes(self, key: str, group: Group) -> tuple[list[int], list[int]]:
        """Return the tokens that this rank sends to each of a group, and receives from each."""
        rows, place = self.activation.shape[0], group.ranks.index(self.rank)
        routes = {source: self._sent_by(source, key, group, rows) for source in group.ranks}
        return routes[self.rank], [routes[source][place] for source in group.ranks]

    def _sent_by(self, source: int, key: str, group: Group, rows: int) -> list[int]:
        draw = random.Random(f"{key} {source}")
        spread = 0.0 if self.faults.is_even else _UNEVEN
        weights = [
            self.faults.hot_experts.get(rank, 1.0) * (1 + spread * (draw.random() - 0.5))
            for rank in group.ranks
        ]
        sent = [int(rows * weight / sum(weights)) for weight in weights]
        sent[-1] += rows - sum(sent)
        return sent

    def _backward(self, tape: Tape, *, is_final: bool) -> Running:
        """Run a micro-batch backward; the final one sums the gradients over the ranks."""
        s, tokens, stage_size = self.session, self.activation, self.division.stage_size
        if not self.is_last:
            pp = self.members["pp"]
            yield from self._waited(pp.receive(tokens, self.rank + stage_size))
        with (
            s.frame("torch/_tensor.py(630): backward"),
            s.frame(RUN_BACKWARD),
            s.on_autograd_thread(),
        ):
            for entry in reversed(tape):
                if isinstance(entry, list):
                    s.run_nodes(entry, self._reduce if is_final else self._accumulate)
                else:
                    yield from self._waited(entry())
        if self.stage:
            self.members["pp"].send(tokens, self.rank - stage_size)

    def _accumulate(self, parameter: SampleTensor) -> None:
        elementwise(self.session, "aten::add_", "add", parameter, parameter, write=parameter)

    def _reduce(self, parameter: SampleTensor) -> None:
        is_of_expert = id(parameter) in self._of_experts
        (self.expert_reducer if is_of_expert else self.reducer).add(parameter)
