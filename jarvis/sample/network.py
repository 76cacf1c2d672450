"""Process groups of the simulated processes, their collectives, and when these begin and end."""

from collections import deque
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jarvis.sample.autograd import Session
from jarvis.sample.gpu import all_reduce_ns, transfer_ns
from jarvis.sample.recorder import Call, Collective
from jarvis.sample.tensors import SampleTensor, TensorList

ALL_REDUCE, ALL_TO_ALL, SEND_RECV = "all_reduce", "all_to_all_v", "send_recv"
_KERNEL = "ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)"

Running = Generator[list[Collective] | None]
"""A process: it yields what it waits for, and None at the end of each step."""


@dataclass(frozen=True, slots=True)
class Group:
    """A process group; ``role`` is what it is for, ``stream`` where its collectives run."""

    role: str
    name: str
    description: str
    ranks: tuple[int, ...]
    stream: int

    def config(self) -> dict[str, Any]:
        """Return the group as the header of a trace lists it."""
        named = {"pg_name": self.name, "pg_desc": self.description, "backend_config": "cuda:nccl"}
        return {**named, "pg_size": len(self.ranks), "ranks": list(self.ranks)}


@dataclass(slots=True)
class Member:
    """One rank of a process group, and its calls."""

    session: Session
    rank: int
    group: Group
    has_metadata: bool = True
    has_seq: bool = False
    count: int = 0

    def all_reduce(self, tensor: SampleTensor) -> Collective:
        """Sum a tensor over the ranks."""
        call = Call(self.group.role, ALL_REDUCE, self.group.ranks)
        inputs = (TensorList((tensor,)), None, None, None, -1)
        names = ("allreduce", "c10d::allreduce_", "nccl:all_reduce")
        return self._launch(call, names, inputs, (tensor, tensor))

    def all_to_all(self, width: int, sent: Sequence[int], received: Sequence[int]) -> Collective:
        """Send each rank its rows of a matrix; PyTorch records how many rows."""
        call = Call(self.group.role, ALL_TO_ALL, self.group.ranks)
        tensors = SampleTensor((sum(sent), width)), SampleTensor((sum(received), width))
        splits = {"In split size": str(list(sent)), "Out split size": str(list(received))}
        names = ("all_to_allv", "c10d::alltoall_base_", "nccl:all_to_all")
        inputs = (tensors[1], tensors[0], None, None, None, -1)
        return self._launch(call, names, inputs, tensors, splits)

    def send(self, tensor: SampleTensor, to: int) -> Collective:
        """Send a tensor to another rank, which has to receive it."""
        call = Call(self.group.role, SEND_RECV, (self.rank, to))
        names = ("send", "c10d::send", f"nccl:send {self.rank}->{to}")
        inputs = (TensorList((tensor,)), None, self.group.ranks.index(to), 0)
        return self._launch(call, names, inputs, (tensor, tensor), {"Dst Rank": to})

    def receive(self, tensor: SampleTensor, source: int) -> Collective:
        """Receive a tensor from another rank."""
        call = Call(self.group.role, SEND_RECV, (source, self.rank))
        names = ("recv", "c10d::recv_", f"nccl:recv {self.rank}<-{source}")
        inputs = (TensorList((tensor,)), None, self.group.ranks.index(source), 0)
        return self._launch(call, names, inputs, (tensor, tensor), {"Src Rank": source})

    def _launch(
        self,
        call: Call,
        names: tuple[str, str, str],
        inputs: tuple[Any, ...],
        tensors: tuple[SampleTensor, SampleTensor],
        more: Mapping[str, Any] | None = None,
    ) -> Collective:
        group, (name, operator, annotation), (sent, received) = self.group, names, tensors
        args: dict[str, Any] = {
            "Collective name": name,
            "In msg nelems": sent.numel,
            "Out msg nelems": received.numel,
            "Group size": len(group.ranks),
            "dtype": "BFloat16",
            "In split size": "[]",
            "Out split size": "[]",
            "Process Group Name": group.name,
            "Process Group Description": group.description,
            "Process Group Ranks": str(list(group.ranks)),
            **(more or {}),
        }
        start, stride = group.ranks[0], group.ranks[1] - group.ranks[0]
        extra = {"Rank": group.ranks.index(self.rank)}
        extra |= {"Global rank start": start, "Global rank stride": stride}
        self.count += 1
        if self.has_seq:
            args["Seq"] = self.count
        if not self.has_metadata:
            args, extra = {}, {}
        s, buffers = self.session, TensorList((sent,))
        with (
            s.op(operator, *inputs),
            s.op("record_param_comms", buffers, None, None, 0, **args, **extra),
            s.annotation(annotation),
        ):
            sizes = sent.nbytes, received.nbytes
            return s.launch_collective(
                call, (_KERNEL, annotation), _stream(group, call), args, sizes
            )


def _stream(group: Group, call: Call) -> int:
    """Return the stream of a call: what goes back in a pipeline does not wait for what goes on."""
    return group.stream + (call.kind == SEND_RECV and call.ranks[0] > call.ranks[1])


@dataclass(frozen=True, slots=True)
class Instance:
    """One collective: when each of its ranks arrives, and when it ends on all, in ns."""

    call: Call
    arrivals_ns: tuple[int, ...]
    end_ns: int
    nbytes: int


class Network:
    """Lets the collectives of all processes begin and end.

    Args:
        sessions: The sessions of the processes, by rank.
        links: The share of its bandwidth that the link of a rank has left.
    """

    def __init__(self, sessions: Sequence[Session], links: Mapping[int, float]) -> None:
        self._sessions, self._links = sessions, links
        self._open: dict[Call, dict[int, deque[Collective]]] = {}

    def run_step(self, running: Sequence[Running]) -> list[Instance]:
        """Run all processes to the end of a step; return its collectives."""
        found: list[Instance] = []
        waiting: dict[int, list[Collective]] = {rank: [] for rank in range(len(running))}
        while waiting:
            before = len(found)
            ready = [r for r, awaited in waiting.items() if all(each.end_ns for each in awaited)]
            for rank in ready:
                awaited = next(running[rank])
                self._post(rank)
                if awaited is None:
                    del waiting[rank]
                else:
                    waiting[rank] = awaited
            found += self._finished()
            assert ready or len(found) > before, "the processes wait for each other"
        return found

    def _post(self, rank: int) -> None:
        """Take the collectives that a rank launched."""
        for each in self._sessions[rank].collectives:
            of_ranks = self._open.setdefault(each.call, {r: deque() for r in each.call.ranks})
            of_ranks[rank].append(each)
        self._sessions[rank].collectives.clear()

    def _finished(self) -> list[Instance]:
        """Finish all collectives that can end now; each ends when the last rank has come."""
        found: list[Instance] = []
        is_done = False
        while not is_done:
            is_done = True
            for call, of_ranks in self._open.items():
                while all(of_ranks.values()):
                    parts = [queue[0] for queue in of_ranks.values()]
                    arrivals = [arrival for each in parts if (arrival := each.arrival_ns)]
                    if len(arrivals) < len(parts):
                        break
                    end_ns = max(arrivals) + self._duration_ns(call, parts)
                    sent = [each.sizes[0] for each in parts]
                    nbytes = sum(sent) if call.kind == ALL_TO_ALL else sent[0]
                    found.append(Instance(call, tuple(arrivals), end_ns, nbytes))
                    for queue in of_ranks.values():
                        queue.popleft().finish(end_ns)
                    is_done = False
        return found

    def _duration_ns(self, call: Call, parts: Sequence[Collective]) -> int:
        left = min(self._links.get(rank, 1.0) for rank in call.ranks)
        if call.kind == ALL_REDUCE:
            return all_reduce_ns(parts[0].sizes[0], len(parts), left)
        return transfer_ns(max(max(each.sizes) for each in parts), left)
