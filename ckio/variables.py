"""The variables of a state: how large each is, and what the steps of a chain do to it.

A checkpoint of x_i need not hold all of x_i. A variable is *live* in x_i if a later step, or the
functional, reads it before it is overwritten: all others are dead, and not needed. One that no step
overwrites is the same in every x_i, and stays where it is. What has to be stored is the rest.

The *version* of a variable in x_j is the last step's end up to j at which the forward overwrote it,
0 if none did: a value of the forward is known by variable and version, however often it is computed
and in however many checkpoints it lies.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from ckio.errors import BadInput
from ckio.flows import NOTHING, Flow, Names, Step, as_names

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

TOGETHER: Final = "+"
"""Between the names of variables that are stored as one; none of them has it in its own."""


class Steps:
    """What every step of a chain does; a sequence of a step for each, or one for all of them.

    Raises BadInput where there are not as many as the chain has.
    """

    def __init__(self, steps: Step | Sequence[Step], length: int) -> None:
        given = [steps] * length if isinstance(steps, Step) else list(steps)
        if len(given) != length:
            raise BadInput(f"{len(given)} steps say what they use; the chain has {length}")
        numbers: dict[Step, int] = {}
        self.length = length
        self._which = np.array([numbers.setdefault(step, len(numbers)) for step in given])
        self.different = list(numbers)
        self.variables: Names = frozenset[str]().union(*(step.variables for step in numbers))

    def __getitem__(self, number: int) -> Step:
        """What one step does."""
        return self.different[int(self._which[number])]

    def has(self, variable: str, flow: str, names: str, /) -> Bools:
        """Whether each step has the variable among the names of one of its flows."""
        return self.column(lambda step: variable in getattr(getattr(step, flow), names))

    def restores(self, variable: str, /) -> Bools:
        """Whether each adjoint step restores the variable."""
        return self.column(lambda step: variable in step.restored)

    def versions(self, variable: str, /) -> Ints:
        """The version of the variable in x_0, ..., x_n."""
        ends = np.arange(1, self.length + 1) * self.has(variable, "forward", "out")
        return np.maximum.accumulate(np.concatenate(([0], ends)))

    def column(self, of: Callable[[Step], bool], /) -> Bools:
        """Something of each step."""
        column: Bools = np.array([of(step) for step in self.different], np.bool_)[self._which]
        return column


@dataclass(frozen=True)
class Variables:
    """The variables of a state, and what all steps do to them.

    Attributes
    ----------
    nbytes : mapping of str to bytes
        How large each variable is. One may stand for several, as `together` puts them.
    steps : Step, or tuple of Step
        What the steps use and overwrite: one for all of them, or one for each.
    seed : frozenset of str
        What the functional and the start of the adjoint read of x_n.
    tape : frozenset of str
        The variables of which the tape of a step is made: as they are in x_i for step i. Empty
        where tapes hold anything else; then nothing is known of what lies in them.

    Raises
    ------
    BadInput
        Where a variable that the steps, the seed or the tape name has no size.
    """

    nbytes: Mapping[str, int] = field(hash=False)
    steps: Step | tuple[Step, ...]
    seed: Names = NOTHING
    tape: Names = NOTHING

    if TYPE_CHECKING:

        def __init__(
            self,
            nbytes: Mapping[str, int],
            steps: Step | Iterable[Step],
            seed: Iterable[str] = (),
            tape: Iterable[str] = (),
        ) -> None: ...

    def __post_init__(self) -> None:
        object.__setattr__(self, "nbytes", dict(self.nbytes))
        if not isinstance(self.steps, Step):
            object.__setattr__(self, "steps", tuple(self.steps))
        for name in ("seed", "tape"):
            object.__setattr__(self, name, as_names(f"Variables: {name}", getattr(self, name)))
        named = self.seed | self.tape
        for step in self.different:
            named |= step.variables
        if unknown := named - self.nbytes.keys():
            raise BadInput(
                f"Variables: nbytes does not say how large {', '.join(sorted(unknown))} is; it"
                f" knows {', '.join(self.nbytes) or 'none'}"
            )

    @cached_property
    def different(self) -> tuple[Step, ...]:
        """The steps that differ, each once."""
        return (self.steps,) if isinstance(self.steps, Step) else tuple(dict.fromkeys(self.steps))

    def over(self, length: int, /) -> Steps:
        """The steps of a chain of this length; raises BadInput where there are not as many."""
        return _over(self.steps, length)

    def cut(self, length: int, /) -> "Variables":
        """Those of the first so many steps."""
        if isinstance(self.steps, Step):
            return self
        return replace(self, steps=self.steps[:length])

    @cached_property
    def changed(self) -> Names:
        """What some step overwrites, forward, recording or back: all others stay as in x_0."""
        flows = [it for step in self.different for it in (step.forward, step.record, step.reverse)]
        return NOTHING.union(*(flow.out for flow in flows))

    @cached_property
    def live(self) -> Names:
        """What is live in some x_i: live_i = use_i | (live_{i+1} - kill_i), live_n = seed."""
        live = found = self.seed
        for step in reversed(self._each()):
            use = step.forward.use | step.record.use | step.reverse.use
            live = use | (live - step.forward.kill)
            found |= live
        return found

    @property
    def stored(self) -> Names:
        """What checkpoints have to hold: what is live, and is overwritten by some step."""
        return self.live & self.changed

    @property
    def restart(self) -> int:
        """Bytes of a checkpoint that holds `stored`."""
        return sum(self.nbytes[name] for name in self.stored)

    def _each(self) -> Sequence[Step]:
        """Steps that say as much of liveness as all of them."""
        return self.different if isinstance(self.steps, Step) else self.steps

    def together(self) -> "Variables":
        """The variables that all steps treat alike are one: read, written and discarded as one.

        A variable of each is enough for what has to be known, and an access for all takes the
        latency of a level once.
        """
        groups: dict[tuple[object, ...], list[str]] = {}
        for name in self.nbytes:
            groups.setdefault(self._treated(name), []).append(name)
        names = {name: TOGETHER.join(group) for group in groups.values() for name in group}
        nbytes = {
            TOGETHER.join(group): sum(self.nbytes[name] for name in group)
            for group in groups.values()
        }
        renamed = {step: _renamed(step, names) for step in self.different}
        steps = (
            renamed[self.steps]
            if isinstance(self.steps, Step)
            else tuple(renamed[step] for step in self.steps)
        )
        seed, tape = ({names[name] for name in some} for some in (self.seed, self.tape))
        return Variables(nbytes, steps, seed, tape)

    def _treated(self, name: str) -> tuple[object, ...]:
        """What all steps do to a variable; only itself where its name cannot stand with others."""
        if TOGETHER in name:
            return (name,)
        columns = tuple(
            (name in step.restored, *(name in names for names in _sets(step)))
            for step in self.different
        )
        return name in self.seed, name in self.tape, columns


def _sets(step: Step) -> Iterable[Names]:
    for flow in (step.forward, step.record, step.reverse):
        yield from (flow.use, flow.out, flow.kill)


def _renamed(step: Step, names: Mapping[str, str]) -> Step:
    def of(some: Names) -> set[str]:
        return {names[name] for name in some}

    forward, record, reverse = (
        Flow(of(flow.use), of(flow.out), of(flow.kill))
        for flow in (step.forward, step.record, step.reverse)
    )
    return Step(forward, record, reverse, of(step.restored))


@lru_cache(maxsize=8)
def _over(steps: Step | tuple[Step, ...], length: int) -> Steps:
    return Steps(steps, length)
