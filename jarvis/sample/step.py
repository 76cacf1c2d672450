"""Training steps of several ranks in parallel, synchronized in every gradient exchange."""

from collections.abc import Generator, Iterator
from contextlib import ExitStack

from jarvis.hardware import HardwareSpec
from jarvis.sample import training
from jarvis.sample.autograd import Session
from jarvis.sample.gpu import Gpu, all_reduce_ns
from jarvis.sample.model import SCALES, build_model
from jarvis.sample.recorder import Event

_FIRST_STEP = 10
_RUN_BACKWARD = "<built-in method run_backward of torch._C._EngineBase object>"


class Process:
    """One rank that trains the model of the sample."""

    def __init__(self, spec: HardwareSpec, rank: int, world_size: int, seed: int, scale: str):
        self.session = Session(Gpu(spec, seed), rank, seed)
        self.world_size = world_size
        self.model, self.parameters = build_model(SCALES[scale])
        size = SCALES[scale]
        self.inputs = training.input_batch(size.batch, size.tokens, size.pixels)
        self.reducer = training.Reducer(self.session, rank, world_size)

    def train(self, steps: int) -> Generator[None, list[int], None]:
        """Run the steps as a generator.

        Yields twice per step: to receive the ends of its collectives in nanoseconds (``send``), and
        at the end of the step.
        """
        s = self.session
        with s.frame("train.py(141): <module>"), s.frame("train.py(118): main"):
            for step in range(steps):
                name = f"ProfilerStep#{_FIRST_STEP + step}"
                with s.annotation(name), s.frame("train.py(76): train_step"):
                    yield from self._train_step(step)
                yield
            s.synchronize()

    def _train_step(self, step: int) -> Generator[None, list[int], None]:
        s = self.session
        with s.frame("torch/utils/data/dataloader.py(732): __next__"):
            s.pause(2_500, 7_000)
        for batch in self.inputs:
            training.copy_to_device(s, batch)
        ids, images, labels = self.inputs
        with self._data_parallel():
            logits = self.model(s, ids, images)
        with s.frame("torch/nn/functional.py(3495): cross_entropy"):
            loss = training.cross_entropy(s, logits, labels)
        with s.frame("torch/_tensor.py(630): backward"), s.frame(_RUN_BACKWARD):
            s.backward(self.reducer.add)
            self.reducer.flush()
            ends_ns = yield
            s.finish_collectives(ends_ns)
        optimizer = "Optimizer.step#AdamW.step"
        with s.annotation(optimizer), s.frame("torch/optim/adamw.py(220): step"):
            training.adamw(s, self.parameters, step)
        with s.frame("train.py(70): log_loss"):
            training.item(s, loss)

    def _data_parallel(self) -> ExitStack:
        frames = ExitStack()
        if self.world_size > 1:
            frames.enter_context(self.session.annotation("DistributedDataParallel.forward"))
            frames.enter_context(self.session.frame("nn.Module: DistributedDataParallel_0"))
        return frames


def simulate_events(processes: list[Process], rank: int, steps: int) -> Iterator[list[Event]]:
    """Yield the events of ``rank``, a list for each step and one for what ends after the last."""
    running = [process.train(steps) for process in processes]
    recorder = processes[rank].session
    for _ in range(steps):
        for steps_of_rank in running:
            next(steps_of_rank)
        ends_ns = _collective_ends([process.session for process in processes])
        for steps_of_rank in running:
            steps_of_rank.send(ends_ns)
        yield recorder.take_events()
        for process in processes:
            process.session.take_events()
    for steps_of_rank in running:
        next(steps_of_rank, None)
    yield recorder.take_events()


def _collective_ends(sessions: list[Session]) -> list[int]:
    """Return when each all-reduce ends on all ranks: it starts when the last of them is ready."""
    ends_ns: list[int] = []
    previous_ns = 0
    for same in zip(*(session.collectives for session in sessions), strict=True):
        start_ns = max(previous_ns + 1, *(collective.ready_ns for collective in same))
        previous_ns = start_ns + all_reduce_ns(same[0].nbytes, len(sessions))
        ends_ns.append(previous_ns)
    return ends_ns
