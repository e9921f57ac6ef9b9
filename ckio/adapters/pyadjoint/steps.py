"""The time steps of a tape: their first run, which pyadjoint records, and later sweeps.

In an evaluation every variable of a tape has one value, which is in memory or not. The state and
the tapes refer to variables, and these references are counted. A value without a reference is
removed from memory.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, assert_never

import numpy as np

from ckio.actions import Action, Advance, Discard, Key, Kind, Read, Record, Reverse, Write
from ckio.adapters.pyadjoint.storage import AWAY, TapeStorage, arrays_of, leaves_memory
from ckio.errors import BadInput
from ckio.model.arrays import as_bytes
from ckio.runner.unknown import Rule
from ckio.schedule import Schedule


def live(step: Any, /) -> list[Any]:
    """Return x_i: the variables that blocks before a step compute and blocks from it on use.

    A part of a function, such as `subfunctions[0]` of Firedrake, gets a new variable from the whole
    function each time that a block uses it. pyadjoint notes its last variable as used nevertheless,
    and stores in it the present numbers of the function, which are those of another step.
    """
    return [
        it
        for it in step.checkpointable_state
        if leaves_memory(it) and not getattr(it.output, "_ad_floating_active", False)
    ]


def used(step: Any, /) -> list[Any]:
    """Return t_i: the variables that are inputs or outputs of the blocks of a step."""
    pairs = ((*block.get_dependencies(), *block.get_outputs()) for block in step)
    return [it for it in dict.fromkeys(chain.from_iterable(pairs)) if leaves_memory(it)]


class Held:
    """The variables whose values are in memory, with the number of references to each.

    `absent` is the substitute for a value that is not in memory. It is None while pyadjoint
    records, because pyadjoint then uses the value of the program's object instead.
    """

    def __init__(self) -> None:
        self.absent: object = None
        self._count: Counter[Any] = Counter()

    def take(self, variables: Iterable[Any], /) -> None:
        """Add a reference to each of these variables."""
        self._count.update(variables)

    def release(self, variables: Iterable[Any], /) -> None:
        """Remove a reference to each of these variables, and values without references."""
        for variable in variables:
            self._count[variable] -= 1
            self.sweep((variable,))

    def sweep(self, variables: Iterable[Any], /) -> None:
        """Remove the values without references from memory."""
        for variable in variables:
            if self._count[variable] <= 0:
                del self._count[variable]
                variable.checkpoint = self.absent


class TapeSteps:
    """The steps with the registers of ckio's machine: a state, and the tapes of some steps.

    Parameters
    ----------
    steps : sequence of TimeStep
        All steps of the tape.
    held : Held
        The variables in memory.
    storage : TapeStorage
        The stored checkpoints.
    """

    def __init__(self, steps: list[Any], held: Held, storage: TapeStorage, /) -> None:
        self._steps, self._held, self._storage = steps, held, storage
        self._live = [*map(live, steps), []]
        self._used = [*map(used, steps)]
        self._state: list[Any] = []
        self._tapes: dict[int, list[Any]] = {}

    def begin(self, recorded: Iterable[int] = (), /) -> None:
        """Begin after the last step, with the tapes of the steps `recorded` in memory."""
        self._held.absent = AWAY
        self._tapes = {step: self._used[step] for step in recorded}
        self._held.sweep(chain.from_iterable(chain(self._live, self._used)))

    def forget(self) -> None:
        """Return to x_0. Its checkpoint has no variables, because no block has run before."""
        self._set_state([])
        self._clear_tapes()

    def variables(self, key: Key, /) -> list[Any]:
        """Return the variables of a checkpoint."""
        return (self._live if key.kind is Kind.RESTART else self._used)[key.step]

    def arrays(self, step: int, /) -> Iterator[tuple[str, str, memoryview]]:
        """Yield name, dtype and bytes of the arrays of x_step, which must be the present state."""
        for number, variable in enumerate(self._live[step]):
            for name, array in arrays_of(variable).items():
                own = np.ascontiguousarray(array)
                label = f"{type(variable.output).__name__} {number}, {name}"
                yield label, own.dtype.str, as_bytes(own)

    def set(self, key: Key, variables: list[Any], /) -> None:
        """Adopt values that were read as the state, or as the only tape."""
        self._held.take(variables)
        if key.kind is Kind.RESTART:
            self._set_state(variables)
        else:
            self._clear_tapes()
            self._tapes[key.step] = variables
            self._held.take(variables)
        self._held.release(variables)

    def forward(self, step: int, /, *, keep: bool = False) -> None:
        """Compute a step again, and store its tape in memory if `keep` is true."""
        for block in self._steps[step]:
            for output in block.get_outputs():
                self._storage.prepare(output, block.get_dependencies())
            block.recompute()
            for output in block.get_outputs():
                self._storage.settle(output)
        if keep:
            self._tapes[step] = self._used[step]
            self._held.take(self._used[step])
        self._set_state(self._live[step + 1])
        self._held.sweep(self._used[step])

    def replace_tapes(self) -> None:
        """Remove all tapes, because a Record replaces them."""
        self._clear_tapes()

    def back(self, step: int, /, *, markings: bool) -> None:
        """Evaluate the adjoint of a step, and remove its tape."""
        blocks = self._steps[step]
        for block in reversed(blocks):
            block.evaluate_adj(markings=markings)
        for block in blocks:
            block.reset_adjoint_state()
            for output in block.get_outputs():
                output.reset_variables(
                    ("tlm",) if output.is_control else ("tlm", "adjoint", "hessian")
                )
        self._held.release(self._tapes.pop(step))

    def _set_state(self, variables: list[Any]) -> None:
        before, self._state = self._state, variables
        self._held.take(variables)
        self._held.release(before)

    def _clear_tapes(self) -> None:
        tapes, self._tapes = self._tapes, {}
        for variables in tapes.values():
            self._held.release(variables)


def split(schedule: Schedule, /) -> tuple[Sequence[Action], Sequence[Action]]:
    """Split a schedule into its first forward sweep and the rest.

    The forward sweep must compute every step once and in order, because the program itself performs
    it while pyadjoint records. Raises BadInput if the schedule does not begin with such a sweep.
    """
    actions, reached = list(schedule.actions), 0
    for number, action in enumerate(actions):
        match action:
            case Advance(begin, end) | Record(begin, end) if begin == reached:
                reached = end
                if end == schedule.chain.length:
                    return actions[: number + 1], actions[number + 1 :]
            case Write() | Read() | Discard():
                pass
            case _:
                raise BadInput(
                    f"#{number} {action} comes before x_{schedule.chain.length} is reached, but the"
                    " program itself computes each step once and in order; use another planner"
                )
    raise BadInput(
        f"the schedule never reaches x_{schedule.chain.length}; use a planner that reverses all"
        " steps"
    )


def endless(rule: Rule, /) -> Iterator[Action]:
    """Yield the forward actions of a run of unknown length."""
    follower, step = rule.follow(0, ()), 0
    while True:
        yield from follower.at(step)
        until = max(step + 1, follower.until(step))
        yield Advance(step, until)
        step = until


class Recording:
    """The first forward sweep. The program itself performs it, and pyadjoint records it.

    The variables of x_i are known only when the blocks of step i have been recorded. Therefore a
    checkpoint x_i is written at the end of step i, while its values are still in memory. If a later
    step needs an older variable, the variable is added to the checkpoint.

    Parameters
    ----------
    steps : sequence of TimeStep
        The steps of the tape, to which pyadjoint adds new ones.
    held : Held
        The variables in memory.
    storage : TapeStorage
        The stored checkpoints.
    actions
        The actions of the forward sweep.
    """

    def __init__(
        self, steps: Sequence[Any], held: Held, storage: TapeStorage, actions: Iterator[Action], /
    ) -> None:
        self._steps, self._held, self._storage = steps, held, storage
        self._actions = actions
        self._action = next(actions, None)
        self._source: tuple[Key, int] | None = None
        self._tapes: dict[int, list[Any]] = {}

    @property
    def tapes(self) -> list[int]:
        """The steps whose tapes are in memory."""
        return list(self._tapes)

    def annotated(self, step: int, /) -> None:
        """Perform the actions for a step, and remove the values that are not needed from memory."""
        self._complete(step)
        while self._action is not None and self._do(self._action, step):
            self._action = next(self._actions, None)
        self._held.sweep(chain(live(self._steps[step]), used(self._steps[step])))

    def _do(self, action: Action, step: int) -> bool:
        """Perform the part of an action that concerns a step; return whether it is complete."""
        match action:
            case Advance(begin, _) | Record(begin, _) if begin > step:
                return False
            case Record(begin, end):
                self._keep(step, fresh=begin == step)
                return end == step + 1
            case Advance(_, end):
                return end == step + 1
            case Write(Key(Kind.RESTART, at), _) if at > step:
                return False
            case Write(key, level) if self._source is not None and self._source[0] == key:
                self._storage.copy_to(key, self._source[1], level)
            case Write(Key(Kind.RESTART), level):
                self._storage.write(action.key, level, live(self._steps[step]))
            case Write(key, level):
                self._storage.write(key, level, used(self._steps[key.step]))
            case Read(key, level):
                self._source = key, level
            case Discard(key, level):
                self._storage.discard(key, level)
            case Reverse():
                raise BadInput(
                    f"{action} is in the forward sweep; use a planner whose schedule reverses no"
                    " step before x_n is reached"
                )
            case _:
                assert_never(action)
        return True

    def _keep(self, step: int, *, fresh: bool) -> None:
        """Keep the tape of a step. If `fresh`, it replaces the tapes of the steps before."""
        replaced = list(self._tapes) if fresh else []
        self._tapes[step] = used(self._steps[step])
        self._held.take(self._tapes[step])  # before the release, so that shared variables stay
        for earlier in replaced:
            self._held.release(self._tapes.pop(earlier))

    def _complete(self, step: int) -> None:
        """Add the older variables that this step is the first to use to stored checkpoints."""
        older = [it for it in live(self._steps[step]) if it.creation_timestep < step - 1]
        for key in {key for level in self._storage.stored for key in level} if older else ():
            if key.kind is Kind.RESTART and key.step < step:
                since = [it for it in older if it.creation_timestep < key.step]
                self._storage.complete(key, since)
