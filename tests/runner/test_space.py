"""Models whose buffers are in memory that levels of the host cannot access."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from small_models import digest

from ckio.actions import Buffers, Key, Kind, Layout
from ckio.backends.base import Backend
from ckio.backends.ram import Ram
from ckio.backends.wrapper import Wrapper
from ckio.errors import BadInput, StorageError
from ckio.model import ForwardingModel
from ckio.planners.dp import hrevolve
from ckio.runner import run
from ckio.runner.failover import failover
from ckio.runner.space import levels_for, memory_for
from ckio.schedule.policy import Overlap

from .failing import Logistic, chain_of, finished, platform_of, truth

STEPS = 6
CHAIN = chain_of(STEPS)
PLATFORM = platform_of(CHAIN, 1, 1, 2)
PLAN = hrevolve(CHAIN, PLATFORM)


class Box:
    """Bytes that only this file can read: a level of the host takes it for no buffer."""

    def __init__(self, inside: memoryview) -> None:
        self.inside, self.nbytes = inside, inside.nbytes

    def __len__(self) -> int:
        return self.nbytes

    def __getitem__(self, part: slice) -> "Box":
        return Box(self.inside[part])


def opened(data: Any) -> Buffers:
    return [it.inside if isinstance(it, Box) else it for it in data]


@dataclass(frozen=True)
class Boxes:
    """The memory; all such objects are equal."""

    def level(self, capacity: int | None = None, /) -> Ram:
        return BoxMemory(capacity=capacity)

    def through(self, level: Backend, /) -> Backend:
        return Opening(level)


class BoxMemory(Ram):
    """Memory in boxes, which can lend some."""

    space = Boxes()

    def gather(self, into: Any, data: Buffers, /) -> None:
        super().gather(*opened([into]), opened(data))

    def scatter(self, data: Any, into: Buffers, /) -> None:
        super().scatter(*opened([data]), opened(into))

    def slot(self, nbytes: int, /) -> Any:
        return Box(super().slot(nbytes))


class Opening(Wrapper):
    """A level that opens boxes for another one."""

    def __init__(self, level: Backend) -> None:
        super().__init__(level)
        self.keeps, self.space = False, Boxes()

    def write(self, key: Key, layout: Layout, data: Buffers, /) -> int:
        return super().write(key, layout, opened(data))

    def read(self, key: Key, into: Buffers, /) -> int:
        return super().read(key, opened(into))


class Boxed(ForwardingModel):
    """A model with its buffers in boxes."""

    space = Boxes()

    def __init__(self, model: Logistic) -> None:
        super().__init__(model)
        self.handed: frozenset[Kind] = frozenset()

    def dump(self, key: Key, /) -> Any:
        return [Box(view) for view in super().dump(key)]

    @contextmanager
    def load(self, key: Key, layout: Layout, /) -> Iterator[Any]:
        with super().load(key, layout) as into:
            yield [Box(view) for view in into]


def levels() -> list[Backend]:
    return [Ram() for _ in PLATFORM.levels]


@pytest.mark.parametrize("overlap", [Overlap(), Overlap(1, 1), Overlap(None, None)], ids=str)
def test_a_run_has_the_gradient_of_a_model_in_the_memory_of_the_host(overlap: Overlap) -> None:
    inside = Logistic()
    timeline = run(PLAN, PLATFORM, Boxed(inside), levels(), overlap=overlap)
    assert digest(inside) == truth(STEPS)
    assert bool(len(timeline.transfers)) == bool(overlap)


def test_a_run_whose_level_fails_carries_its_state_in_that_memory() -> None:
    made: list[Logistic] = []

    def fresh() -> Boxed:
        made.append(Logistic())
        return Boxed(made[-1])

    class Broken(Ram):
        def read(self, key: Key, into: Buffers, /) -> int:
            raise StorageError("this read was to fail")

    broken = [*levels()[:2], Broken()]
    told: list[str] = []
    _, last = failover(
        *(PLAN, PLATFORM, fresh(), broken), fresh=fresh, replan=finished, warn=told.append
    )
    assert told
    assert isinstance(last, Boxed)
    assert digest(made[-1]) == truth(STEPS)


def test_levels_stay_as_they_are_for_a_model_in_the_memory_of_the_host() -> None:
    given = levels()
    assert levels_for(Logistic(), given) is given
    assert type(memory_for(Logistic(), 100)) is Ram
    assert memory_for(Boxed(Logistic()), 100).capacity == 100


def test_a_level_that_takes_such_buffers_gets_them() -> None:
    model, given = Boxed(Logistic()), [BoxMemory(), Ram()]
    own, opening = levels_for(model, given)
    assert own is given[0]
    assert isinstance(opening, Opening)
    assert list(levels_for(model, [own, opening])) == [own, opening]


def test_what_is_no_level_is_refused_by_its_class() -> None:
    with pytest.raises(BadInput, match="dict is no level; derive its class from"):
        levels_for(Logistic(), [Ram(), {}])  # type: ignore[list-item]
