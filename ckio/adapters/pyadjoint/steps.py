"""The time steps of a tape that has been recorded: forward, back, and what each needs.

Every variable of a tape has one value in an evaluation, so that values are only ever there or not.
They are counted: the state and the tapes hold variables, and what nothing holds leaves memory.
"""

from collections import Counter
from collections.abc import Iterable
from itertools import chain
from typing import Any

from ckio.actions import Key, Kind
from ckio.adapters.pyadjoint.values import AWAY, leaves_memory


def live(step: Any, /) -> list[Any]:
    """x_i: the variables that blocks have made before a step, and use in it or later."""
    return [it for it in step.checkpointable_state if leaves_memory(it)]


def used(step: Any, /) -> list[Any]:
    """t_i: the variables that the blocks of a step take and make."""
    pairs = ((*block.get_dependencies(), *block.get_outputs()) for block in step)
    return [it for it in dict.fromkeys(chain.from_iterable(pairs)) if leaves_memory(it)]


class Held:
    """Which variables have their values in memory, and for how many reasons.

    `absent` is what a variable has whose value has left: None while pyadjoint records, which then
    takes that of the object again when it needs it.
    """

    def __init__(self) -> None:
        self.absent: object = None
        self._count: Counter[Any] = Counter()

    def take(self, variables: Iterable[Any], /) -> None:
        """One more reason for each of these."""
        self._count.update(variables)

    def release(self, variables: Iterable[Any], /) -> None:
        """One reason less; what has none left leaves memory."""
        for variable in variables:
            self._count[variable] -= 1
            self.sweep((variable,))

    def sweep(self, variables: Iterable[Any], /) -> None:
        """Let go of those that nothing holds."""
        for variable in variables:
            if self._count[variable] <= 0:
                del self._count[variable]
                variable.checkpoint = self.absent


class Steps:
    """The steps as registers of ckio's machine: a state, and the tapes of some steps.

    Parameters
    ----------
    steps : sequence of TimeStep
        All of them.
    held : Held
        What is in memory.
    """

    def __init__(self, steps: list[Any], held: Held, /) -> None:
        self._steps, self._held = steps, held
        self._live = [*map(live, steps), []]
        self._used = [*map(used, steps)]
        self._state: list[Any] = []
        self._tapes: dict[int, list[Any]] = {}

    def begin(self, recorded: Iterable[int] = (), /) -> None:
        """Behind the last step, of which and others before it there are tapes; nothing else."""
        self._held.absent = AWAY
        self._tapes = {step: self._used[step] for step in recorded}
        self._held.sweep(chain.from_iterable(chain(self._live, self._used)))

    def forget(self) -> None:
        """At x_0, of which nothing has to be stored: no block has made anything yet."""
        self._set_state([])
        self._clear_tapes()

    def variables(self, key: Key, /) -> list[Any]:
        """What a checkpoint consists of."""
        return (self._live if key.kind is Kind.RESTART else self._used)[key.step]

    def set(self, key: Key, variables: list[Any], /) -> None:
        """Hold what has been read: as the state, or as the only tape."""
        self._held.take(variables)
        if key.kind is Kind.RESTART:
            self._set_state(variables)
        else:
            self._clear_tapes()
            self._tapes[key.step] = variables
            self._held.take(variables)
        self._held.release(variables)

    def forward(self, step: int, /, *, keep: bool = False) -> None:
        """Compute a step again; its tape is kept where that is said."""
        for block in self._steps[step]:
            block.recompute()
        if keep:
            self._tapes[step] = self._used[step]
            self._held.take(self._used[step])
        self._set_state(self._live[step + 1])
        self._held.sweep(self._used[step])

    def replace_tapes(self) -> None:
        """Let go of all tapes: a Record replaces them."""
        self._clear_tapes()

    def back(self, step: int, /, *, markings: bool) -> None:
        """The adjoint of a step, whose tape it takes."""
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
