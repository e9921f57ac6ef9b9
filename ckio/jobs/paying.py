"""Whether ckio pays on this machine: one gradient with every tape stored, and one with ckio."""

import time
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from typing import Any, NamedTuple

from ckio.errors import RunFailed
from ckio.jobs.display import QUIET, Display
from ckio.jobs.gradients import digest
from ckio.jobs.memory import of_process
from ckio.jobs.models import Settings, maker, naming
from ckio.jobs.once import gradient
from ckio.jobs.sweeping import everything
from ckio.model import Array, Differentiable
from ckio.platform.memory import available
from ckio.platform.readable import bytes_text, seconds_text


class Taken(NamedTuple):
    """What a gradient took in a process of its own.

    Attributes
    ----------
    seconds : float
        From x_0 to the gradient. Measuring and planning take further seconds, once for each plan.
    memory : int
        The most bytes of the process, including Python and the model.
    forward_steps : int
        How often a step was computed.
    digest : str
        The same for two gradients only if they are bitwise equal.
    """

    seconds: float
    memory: int
    forward_steps: int
    digest: str


class Comparison(NamedTuple):
    """A gradient with ckio and, if memory allows it, with every tape stored.

    Attributes
    ----------
    steps : int
        The number of steps.
    tapes, free : int
        The bytes of all tapes, and those that are available to a process.
    predicted : float
        The seconds of storing every tape, by the measured costs of a step.
    ckio, store_all : Taken
        What was measured; `store_all` is None if the tapes do not fit in memory.
    """

    steps: int
    tapes: int
    free: int
    predicted: float
    ckio: Taken
    store_all: Taken | None

    @property
    def factor(self) -> float:
        """The seconds with ckio over those of storing every tape, measured or else predicted."""
        return self.ckio.seconds / (self.store_all.seconds if self.store_all else self.predicted)

    def verdict(self) -> str:
        """Return in words whether ckio pays for this number of steps, and from which number on."""
        took = f"{seconds_text(self.ckio.seconds)} and {bytes_text(self.ckio.memory)}"
        if self.store_all is None:
            return (
                f"ckio pays: it took {took}. Storing every tape needs {bytes_text(self.tapes)},"
                f" and {bytes_text(self.free)} are available; with enough memory it would take"
                f" {seconds_text(self.predicted)} by the costs of a step, and ckio takes"
                f" {self.factor:.2f} times that."
            )
        stored = f"{seconds_text(self.store_all.seconds)} and {bytes_text(self.store_all.memory)}"
        if self.factor <= 1:
            return f"ckio pays: it took {took}, and storing every tape {stored}."
        longest = int(self.steps * self.free / self.tapes)
        return (
            f"Every tape fits in memory, and storing them is faster: {stored}. ckio took {took},"
            f" {self.factor:.2f} times as long with {self.ckio.memory / self.store_all.memory:.2f}"
            f" of the memory. It pays beyond about {longest:,} steps, whose tapes fill the"
            f" {bytes_text(self.free)} that are available."
        )


def compare_with_store_all(
    model: str,
    steps: int,
    settings: Settings,
    levels: Mapping[str, Any],
    /,
    *,
    display: Display = QUIET,
) -> Comparison:
    """Compute a gradient with ckio and with every tape stored, each in a process of its own.

    `levels` has `ram` and `disk` as for `Job`. Every tape is stored only if all of them fit in the
    available memory. Raises BadInput and RunFailed as `gradient` does.
    """
    with display.progress("with ckio"):
        ckio, tapes, predicted = _alone(_by_ckio, model, steps, settings, levels)
    free, stored = available() or 0, None
    if tapes + ckio.memory < free:
        with display.progress("with every tape stored"):
            stored = _alone(_by_store_all, model, steps, settings)
    return Comparison(steps, tapes, free, predicted, ckio, stored)


def _alone(function: Callable[..., Any], /, *arguments: Any) -> Any:
    """Call a function in a new process, which has imported nothing and used no memory before."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as processes:
        try:
            return processes.submit(function, *arguments).result()
        except BrokenProcessPool:
            raise RunFailed(
                "the process that computed the gradient was killed, probably because memory was"
                " short; take fewer steps or a smaller model"
            ) from None


def _by_ckio(
    model: str, steps: int, settings: Settings, levels: Mapping[str, Any]
) -> tuple[Taken, int, float]:
    result = gradient(model, steps=steps, settings=settings, display=QUIET, **levels)
    figures = result.figures
    taken = Taken(
        figures["measured"], of_process()[1], figures["forward_steps"], figures["gradient_digest"]
    )
    return taken, *everything(result.schedule.chain)


def _by_store_all(model: str, steps: int, settings: Settings) -> Taken:
    fresh = maker(model, settings)
    with naming(f"model {model!r}"):
        store_all_gradient(fresh(), 1)  # a framework compiles the step when it is first called
        model_of_all, begun = fresh(), time.perf_counter()
        found = store_all_gradient(model_of_all, steps)
        seconds = time.perf_counter() - begun
    return Taken(seconds, of_process()[1], steps, digest(found))


def store_all_gradient(model: Differentiable, steps: int, /) -> Mapping[str, Array]:
    """Return the gradient without checkpoints: record all steps, then reverse all of them."""
    model.record(0, steps)
    model.reverse(0, steps)
    return model.gradient
