"""The snapshots that take the fewest seconds, over all checkpoints of a code together.

The paper's policies take every checkpoint by itself. But what [C]; D leaves to D̄ is Req of the
checkpoints in D, which store it in their turn, or leave it to a tape further on: what it costs is
known only there. Each variable is on its own, though, and between two parts of the code there is
but one bit of it, whether it is in Req. So with

    S(v, code, r)    least seconds to store v in the snapshots and tapes of the code; r: v in Req

    S(v, plain, r)   = seconds of v on its tape, where r and v in out(adjoint), else 0
    S(v, [C]; D, r)  = min over v in Opt_k+ or Opt_k- of
                       seconds of v in Snp and Sbk + S(v, C, v in Req_C) + S(v, D, v in Req_D)

the least of the whole family (7), of all checkpoints jointly, is found part by part from the
innermost on, and then read off from the outermost on.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ckio.actions.variables import Names, as_names
from ckio.analysis.dataflow.code import Checkpointed, Code, Plain
from ckio.analysis.dataflow.snapshots import Snapshot
from ckio.errors import BadInput
from ckio.platform import Level


@dataclass(frozen=True, kw_only=True)
class Prices:
    """What it takes to store a variable: its bytes times the measured seconds per byte of a level.

    The latency of a level does not count, as the arrays of a snapshot are stored together.

    Attributes
    ----------
    nbytes : mapping of str to int
        Bytes of each variable.
    snapshots : Level
        Where snapshots are stored. Each array is written and discarded once. It is read before C̄
        for Snp and after it for Sbk; one that is in both is read twice.
    tape : Level
        Where the tapes lie; what is on them is written, read and discarded once.
    """

    nbytes: Mapping[str, int] = field(hash=False)
    snapshots: Level
    tape: Level

    def of(self, variable: str, snapshot: Snapshot, /) -> float:
        """Seconds of one variable in one snapshot."""
        reads = (variable in snapshot.snp) + (variable in snapshot.sbk)
        if not reads:
            return 0.0
        level = self.snapshots
        once = level.write.per_byte + level.discard.per_byte
        return self._bytes(variable) * (once + reads * level.read.per_byte)

    def taped(self, variable: str, plain: Plain, required: bool, /) -> float:
        """Seconds of one variable on the tape of code without a checkpoint, that it be put back."""
        if not required or variable not in plain.adjoint.out:
            return 0.0
        price = self.tape.write.per_byte + self.tape.read.per_byte + self.tape.discard.per_byte
        pushed = plain.pushed.get(variable)
        return (self._bytes(variable) if pushed is None else pushed) * price

    def _bytes(self, variable: str) -> int:
        if variable not in self.nbytes:
            raise BadInput(f"Prices: nbytes does not say how large {variable} is")
        return self.nbytes[variable]


@dataclass(slots=True)
class _Part:
    """A part of the code, the places of C and D in the list of parts, and what was found of it."""

    code: Code
    first: int = -1
    rest: int = -1
    seconds: tuple[Mapping[str, float], Mapping[str, float]] = ({}, {})  # by r
    plus: tuple[Names, Names] = (frozenset(), frozenset())  # by r


def cheapest(
    code: Code, /, req: Iterable[str] = (), *, prices: Prices
) -> tuple[tuple[Snapshot, ...], float]:
    """The snapshots of least seconds, in the order of `plan`, and the seconds of all stored data.

    Of what is equal it takes the lazy side. Raises BadInput for a variable without a size.
    """
    required = as_names("cheapest: req", req)
    parts = _parts(code)
    variables = sorted(_touched(parts) | required)
    for part in reversed(parts):  # C and D before [C]; D
        _solve(part, parts, variables, prices)
    found = parts[0].seconds
    return _read_off(parts, required), sum(found[v in required][v] for v in variables)


def _parts(code: Code) -> list[_Part]:
    """[C]; D before the parts of D, and these before the parts of C."""
    parts: list[_Part] = []
    left: list[tuple[Code, _Part | None, bool]] = [(code, None, False)]
    while left:
        code, outer, is_first = left.pop()
        if outer is not None and is_first:
            outer.first = len(parts)
        elif outer is not None:
            outer.rest = len(parts)
        parts.append(part := _Part(code))
        if isinstance(code, Checkpointed):
            left += [(code.first, part, True), (code.rest, part, False)]
    return parts


def _touched(parts: Iterable[_Part]) -> Names:
    flows = (flow for part in parts for flow in (part.code.forward, part.code.adjoint))
    return frozenset[str]().union(*(flow.use | flow.out for flow in flows))


def _solve(part: _Part, parts: list[_Part], variables: list[str], prices: Prices) -> None:
    """S(v, part, r) for every variable v and both r, and which of them are in Opt_k+ then."""
    code = part.code
    if isinstance(code, Plain):
        part.seconds = (
            dict.fromkeys(variables, 0.0),
            {v: prices.taped(v, code, True) for v in variables},
        )
        return
    first, rest = parts[part.first].seconds, parts[part.rest].seconds

    def seconds(v: str, snapshot: Snapshot) -> float:
        inside = first[v in snapshot.req_c][v] + rest[v in snapshot.req_d][v]
        return prices.of(v, snapshot) + inside

    least, plus = [], []
    for required in ((), variables):
        cut = code.cut(frozenset(required))
        minus, other = cut.choice(()), cut.choice(cut.opt1 | cut.opt2 | cut.opt3)
        by_side = {v: (seconds(v, minus), seconds(v, other)) for v in variables}
        least.append({v: min(sides) for v, sides in by_side.items()})
        plus.append(frozenset(v for v, sides in by_side.items() if sides[1] < sides[0]))
    part.seconds, part.plus = (least[0], least[1]), (plus[0], plus[1])


def _read_off(parts: list[_Part], req: Names) -> tuple[Snapshot, ...]:
    required, snapshots = {0: req}, []
    for number, part in enumerate(parts):
        if isinstance(part.code, Plain):
            continue
        cut = part.code.cut(required[number])
        snapshot = cut.choice((part.plus[1] & cut.req) | (part.plus[0] - cut.req))
        snapshots.append(snapshot)
        required |= {part.first: snapshot.req_c, part.rest: snapshot.req_d}
    return tuple(snapshots)
