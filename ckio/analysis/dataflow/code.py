"""Code with checkpoints in it, nested and one after the other, and what each of them stores."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TypeAlias

from ckio.actions.checks import check_size
from ckio.actions.variables import NOTHING, Flow, Names, Step, as_names
from ckio.analysis.dataflow.snapshots import Cut, Policy, Snapshot, lazy
from ckio.errors import BadInput


@dataclass(frozen=True, slots=True)
class Plain:
    """Code without a checkpoint in it: its adjoint keeps what it needs on its tape.

    Attributes
    ----------
    forward : Flow
        Of the code.
    adjoint : Flow
        Of its adjoint: the forward sweep, then the backward sweep, required to keep nothing.
    pushed : mapping of str to int
        Bytes that its tape takes to put a variable back, where that is not simply its size: less
        where a few of its elements are overwritten, more where they are overwritten repeatedly.
    """

    forward: Flow
    adjoint: Flow
    pushed: Mapping[str, int] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        pushed = {name: check_size(f"pushed[{name!r}]", it) for name, it in self.pushed.items()}
        object.__setattr__(self, "pushed", MappingProxyType(pushed))

    @staticmethod
    def of(step: Step, /) -> "Plain":
        """One step of a chain, recorded and reversed at once."""
        return Plain(step.forward, step.adjoint)


@dataclass(frozen=True, slots=True)
class Checkpointed:
    """[C]; D: the code C, checkpointed, then the code D. There may be checkpoints in both.

    Attributes
    ----------
    first, rest : Plain or Checkpointed
        C and D.
    forward, adjoint : Flow
        Of all of it; they follow from C and D.
    """

    first: "Code"
    rest: "Code"
    forward: Flow = field(init=False, compare=False)
    adjoint: Flow = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "forward", self.first.forward.then(self.rest.forward))
        object.__setattr__(self, "adjoint", self.cut(NOTHING).adjoint)

    def cut(self, req: Names, /) -> Cut:
        """Its outermost checkpoint, where the code before it requires `req`."""
        return Cut(self.first.forward, self.first.adjoint, self.rest.adjoint, req)


Code: TypeAlias = Plain | Checkpointed


def successive(parts: Sequence[Code], /) -> Code:
    """[C_1]; [C_2]; ... and the last part, which is not checkpointed.

    Raises BadInput where there is no part.
    """
    if not parts:
        raise BadInput("successive: no code; give at least one part")
    code = parts[-1]
    for part in reversed(parts[:-1]):
        code = Checkpointed(part, code)
    return code


def plan(code: Code, /, req: Iterable[str] = (), *, policy: Policy = lazy) -> tuple[Snapshot, ...]:
    """What each checkpoint stores, in the order in which a run comes to store it.

    That is: of [C]; D first its own snapshot, then all those in D, then those in C. Req of D is
    then Req_D, and that of C is Req_C; `req` is that of the code itself.
    """
    snapshots: list[Snapshot] = []
    # A list, not a recursion: successive checkpoints may be thousands deep.
    left = [(code, as_names("plan: req", req))]
    while left:
        part, required = left.pop()
        if isinstance(part, Checkpointed):
            snapshot = policy(part.cut(required))
            snapshots.append(snapshot)
            left += [(part.first, snapshot.req_c), (part.rest, snapshot.req_d)]
    return tuple(snapshots)
