"""What remains when a level fails in mid-run: what can still be asked of which level.

It always gets less: a failure gives up a level, or takes room that it is known not to have, or a
key from those that it held when it lost one for the first time. So a run ends, whatever fails.
"""

from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Final, NamedTuple, TypeAlias

from ckio.actions import Action, Discard, Key, Kind, Layout, Read, Write
from ckio.backends.base import Backend, Keeping
from ckio.backends.ram import Ram
from ckio.errors import BadInput, CorruptCheckpoint, LevelFull, MissingCheckpoint, StorageError
from ckio.model import Model
from ckio.platform import Affine, Level, Platform
from ckio.platform.chain import Chain
from ckio.schedule.machine import Machine

Stored: TypeAlias = tuple[frozenset[Key], ...]
"""The keys on each level."""

_NEVER: Final = Affine(latency=1e30)
"""What a write costs that nobody is to plan, unless there is no other way at all."""

_ONE_EACH: Final = 1e-18
"""The ratio by which every checkpoint takes one byte of a capacity, however large it is."""

_NAMED: Final = 6
"""How many failures an error lists."""


class Failure(NamedTuple):
    """What ended a part of a run.

    Attributes
    ----------
    error : StorageError
    level : int
        The number of the level that failed.
    action : Action or None
        What failed; None where the level could not be made ready for a plan.
    machine : Machine
        Where the model stands, and what should be stored.
    """

    error: StorageError
    level: int
    action: Action | None
    machine: Machine


class NotReady(Exception):
    """A level, of this number, failed before the first action of a part."""

    def __init__(self, error: StorageError, level: int) -> None:
        super().__init__(error, level)
        self.error, self.level = error, level


class Remains:
    """What is left of the levels, and the memory in which a model's place is carried."""

    def __init__(self, chain: Chain, platform: Platform, backends: Sequence[Backend]) -> None:
        self._chain, self._platform = chain, platform
        self._levels, self._backends = list(platform.levels), list(backends)
        self._full = set[int]()
        self._doubted: dict[int, frozenset[Key]] = {}
        self._carried = Ram()
        self._facts, self._told = list[str](), 0

    @property
    def platform(self) -> Platform:
        """The levels, as large as they still are, and that memory."""
        names, name = {level.name for level in self._levels}, "carried"
        while name in names:
            name += "_"
        many = len(self._carried.keys())
        carried = Level(name=name, capacity=many, ratio=_ONE_EACH, write=_NEVER)
        return replace(self._platform, levels=(*self._levels, carried))

    @property
    def backends(self) -> list[Backend]:
        """One for each of them; those that are full make no more room for a plan."""
        full = {*self._full, len(self._backends)}
        return [
            _Blamed(backend, number, full=number in full)
            for number, backend in enumerate((*self._backends, self._carried))
        ]

    def note(self, failure: Failure, /) -> None:
        """Hold against a level what it did."""
        error, number, action, machine = failure
        match error, action:
            case LevelFull(), Write() | None:
                self._shrink(number, error, machine.stored[number])
            case CorruptCheckpoint() | MissingCheckpoint(), Read(key, _) | Discard(key, _):
                self._lose(number, error, key)
            case _:
                self._give_up(number, error)

    def carry(self, model: Model, machine: Machine, /) -> None:
        """Dump what a fresh model does not have, where it is of use: x_i only below the adjoint."""
        end = self._chain.length
        moved = machine.turned or machine.adjoint < end
        if moved and machine.adjoint < self._adjoint(end + 1):
            self._dump(model, Key(Kind.ADJOINT, machine.adjoint))
        if machine.state is not None and 0 < machine.state < self._adjoint(end):
            self._dump(model, Key(Kind.RESTART, machine.state))

    def stored(self, machine: Machine, /) -> Stored:
        """What is really there of what should be, on each level; what should not be there goes.

        With overlap a discard that the program has done may not have reached its level.
        """
        levels = range(len(self._levels))
        there = [self._listed(number) for number in levels]
        for number in levels:
            lost = there[number].difference(machine.stored[number])
            for key in sorted(lost, key=str):  # the same order on all ranks of a job
                with suppress(StorageError):
                    self._backends[number].discard(key)
        kept = [there[number].intersection(machine.stored[number]) for number in levels]
        return *kept, frozenset(self._carried.keys())

    def tell(self, say: Callable[[str], None], /) -> None:
        """Say what is not said yet."""
        for fact in self._facts[self._told :]:
            say(f"{fact}; the rest of the run is planned anew")
        self._told = len(self._facts)

    def hopeless(self, reason: BadInput, failure: Failure, /) -> StorageError:
        """The error that ends the run."""
        facts = self._facts[:_NAMED] + ["..."] * (len(self._facts) > _NAMED)
        error = StorageError(
            f"{'; '.join(facts)}; and there is no way to go on: {reason}. What lies on durable"
            " levels is intact: resume the run when they are there again, or have room"
        )
        error.action, error.level = failure.error.action, failure.level
        return error

    def close(self) -> None:
        """Give back the memory."""
        self._carried.close()

    def _shrink(self, number: int, error: StorageError, stored: Collection[Key]) -> None:
        level = self._levels[number]
        keys = self._listed(number).intersection(stored)
        held = sum(level.stored(self._chain.nbytes(key)) for key in keys)
        if number in self._full and level.capacity is not None and held >= level.capacity:
            self._give_up(number, error)
            return
        if number not in self._full:
            self._facts.append(f"level {level.name!r} is full, and gets no more room: {error}")
        self._full.add(number)
        self._levels[number] = replace(level, capacity=held)

    def _lose(self, number: int, error: StorageError, key: Key) -> None:
        """Discard what cannot be read; the second time, only what was there the first time."""
        with suppress(StorageError):
            self._backends[number].discard(key)
        there = self._listed(number)
        doubted = self._doubted.get(number)
        if key in there or (doubted is not None and key not in doubted):
            self._give_up(number, error)
            return
        self._doubted[number] = there if doubted is None else doubted & there
        self._facts.append(f"{key} on level {self._levels[number].name!r} is lost: {error}")

    def _give_up(self, number: int, error: StorageError) -> None:
        level = self._levels[number]
        self._facts.append(f"level {level.name!r} fails, and is given up: {error}")
        self._full.add(number)
        self._levels[number], self._backends[number] = replace(level, capacity=0), Ram(capacity=0)

    def _listed(self, number: int) -> frozenset[Key]:
        try:
            return frozenset(self._backends[number].keys())
        except StorageError as error:
            self._give_up(number, error)
            return frozenset()

    def _adjoint(self, default: int) -> int:
        """The step of the adjoint that is carried."""
        keys = self._carried.keys()
        return min((key.step for key in keys if key.kind is Kind.ADJOINT), default=default)

    def _dump(self, model: Model, key: Key) -> None:
        """Into memory, in place of another of this kind."""
        parts = self._chain.parts(key)
        held = self._carried.keys()
        for other in held:
            if other.kind is key.kind and other not in parts:
                self._carried.discard(other)
        try:
            for part in parts:
                if part not in held:
                    self._carried.write(part, model.layout(part), model.dump(part))
        except StorageError as error:
            self._facts.append(f"{key} cannot be carried, and is computed again: {error}")


def blamed(backends: Sequence[Backend], /) -> list[Backend]:
    """Levels that raise NotReady with their number where they cannot be made ready at the start.

    That one has no room for the plan is left as it is: LevelFull, which is bad input.
    """
    return [_Blamed(backend, number, first=True) for number, backend in enumerate(backends)]


class _Blamed:
    """A level that raises NotReady where it cannot be made ready; one that is full is not."""

    def __init__(
        self, backend: Backend, number: int, *, full: bool = False, first: bool = False
    ) -> None:
        self.durable, self.lossless = backend.durable, getattr(backend, "lossless", True)
        self._first = first
        self.write, self.layout, self.read = backend.write, backend.layout, backend.read
        self.discard, self.close = backend.discard, backend.close
        self._backend, self._number, self._full = backend, number, full
        if isinstance(backend, Keeping):
            self.slot, self.keep, self.kept = backend.slot, backend.keep, backend.kept

    def reserve(self, sizes: Mapping[int, int], /) -> None:
        if not self._full:
            with self._blamed():
                self._backend.reserve(sizes)

    def prepare(self, key: Key, layout: Layout, count: int, /) -> None:
        """As the level does, where it does."""
        prepare = getattr(self._backend, "prepare", None)
        if prepare is not None and not self._full:
            # Of the kinds together there may be more than fits: they peak at different times.
            with self._blamed(), suppress(LevelFull):
                prepare(key, layout, count)

    def keys(self) -> Iterable[Key]:
        with self._blamed():
            return self._backend.keys()

    @contextmanager
    def _blamed(self) -> Generator[None]:
        try:
            yield
        except StorageError as error:
            if self._first and isinstance(error, LevelFull):
                raise
            raise NotReady(error, self._number) from error
