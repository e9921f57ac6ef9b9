"""The snapshots with the fewest seconds of all checkpoints together.

The policies of Dauvergne & Hascoet treat every checkpoint separately. But the variables that [C]; D
leaves to D̄ are Req of the checkpoints in D. These store the variables or leave them to a later
tape. Therefore their cost is known only there. The variables are independent, and between two parts
of the code it only matters whether a variable is in Req. Therefore, with

    S(v, code, r)    least seconds to store v in snapshots and tapes of the code; r: v in Req

    S(v, plain, r)   = seconds of v on its tape, if r and v in out(adjoint), else 0
    S(v, [C]; D, r)  = min over v in Opt_k+ or Opt_k- of
                       seconds of v in Snp and Sbk + S(v, C, v in Req_C) + S(v, D, v in Req_D)

the minimum over the whole family (7), for all checkpoints jointly, is computed from the innermost
part to the outermost, and the choices are then read from the outermost to the innermost.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ckio.actions.variables import Names
from ckio.analysis.snapshots import Checkpointed, Code, Plain, Snapshot, walk
from ckio.platform import Level


@dataclass(frozen=True, kw_only=True)
class SnapshotRates:
    """Seconds to store a variable: its bytes times the measured seconds per byte of a level.

    The latency of a level does not count, because the arrays of a snapshot are stored together.

    Attributes
    ----------
    nbytes : mapping of str to int
        Bytes of each variable.
    snapshots : Level
        The level of snapshots. Each array is written and discarded once. It is read before C̄ for
        Snp and after C̄ for Sbk; an array in both sets is read twice.
    tape : Level
        The level of tapes. Each variable on them is written, read and discarded once.
    """

    nbytes: Mapping[str, int] = field(hash=False)
    snapshots: Level
    tape: Level

    def of(self, variable: str, snapshot: Snapshot, /) -> float:
        """Return the seconds of one variable in one snapshot."""
        reads = (variable in snapshot.snp) + (variable in snapshot.sbk)
        if not reads:
            return 0.0
        level = self.snapshots
        once = level.write.per_byte + level.discard.per_byte
        return self.nbytes[variable] * (once + reads * level.read.per_byte)

    def taped(self, variable: str, plain: Plain, /) -> float:
        """Return the seconds of one variable on the tape of code that restores it."""
        rate = self.tape.write.per_byte + self.tape.read.per_byte + self.tape.discard.per_byte
        return plain.pushes(variable, self.nbytes[variable]) * rate


_BySide = tuple[Mapping[str, float], Mapping[str, float]]
"""The seconds of each variable if it is not in Req, and if it is."""


def cheapest(
    code: Code, /, req: Iterable[str] = (), *, rates: SnapshotRates
) -> tuple[tuple[Snapshot, ...], float]:
    """Return the snapshots with the fewest seconds, and the seconds; of equal plans the lazy one.

    C: u = f(u, k) overwrites u (8 bytes), and its adjoint uses u and k (16 bytes). D overwrites
    both. With a second per written byte, u costs 8 s with every policy. The lazy policy pays 16 s
    for k on the tape of D, and the eager policy 16 s for k in the snapshot. If the tape of D
    contains only the 2 bytes of k that D overwrites, the lazy choice costs 2 s:

    >>> from ckio.actions.variables import Flow
    >>> from ckio.analysis.snapshots import successive
    >>> from ckio.platform import Affine
    >>> disk = Level(name="disk", write=Affine(per_byte=1))
    >>> rates = SnapshotRates(nbytes={"u": 8, "k": 16}, snapshots=disk, tape=disk)
    >>> c, d = Flow({"u", "k"}, {"u"}, {"u"}), Flow({"u", "k"}, {"u", "k"}, {"u", "k"})
    >>> cheapest(successive([Plain(c, c), Plain(d, d)]), rates=rates)[1]
    24.0
    >>> cheapest(successive([Plain(c, c), Plain(d, d, {"k": 2})]), rates=rates)[1]
    10.0
    """
    required = frozenset(req)
    parts = [part for part, _ in walk(code, required, lambda *_: Snapshot())]
    flows = [flow for part in parts for flow in (part.forward, part.adjoint)]
    variables = sorted(required.union(*(flow.use | flow.out for flow in flows)))
    least: dict[int, _BySide] = {}
    plus: dict[int, tuple[Names, Names]] = {}
    for part in reversed(parts):  # C and D before [C]; D
        if isinstance(part, Plain):
            taped = {v: rates.taped(v, part) for v in variables}
            least[id(part)] = dict.fromkeys(variables, 0.0), taped
        elif id(part) not in least:
            sides = [_sides(part, req, variables, least, rates) for req in ((), variables)]
            without, with_ = ({v: min(pair) for v, pair in side.items()} for side in sides)
            least[id(part)] = without, with_
            lower = [[v for v, (minus, more) in side.items() if more < minus] for side in sides]
            plus[id(part)] = frozenset(lower[0]), frozenset(lower[1])

    def choose(part: Checkpointed, req: Names) -> Snapshot:
        without, with_ = plus[id(part)]
        return part.family(req).choice((with_ & req) | (without - req))

    snapshots = tuple(it for _, it in walk(code, required, choose) if isinstance(it, Snapshot))
    return snapshots, sum(least[id(code)][v in required][v] for v in variables)


def _sides(
    part: Checkpointed,
    req: Iterable[str],
    variables: Sequence[str],
    least: Mapping[int, _BySide],
    rates: SnapshotRates,
) -> dict[str, tuple[float, float]]:
    """Return, for each variable, S(v, [C]; D, r) if it is in Opt_k-, and if it is in Opt_k+."""
    family = part.family(frozenset(req))
    first, rest = least[id(part.first)], least[id(part.rest)]

    def seconds(v: str, snapshot: Snapshot) -> float:
        inside = first[v in snapshot.req_c][v] + rest[v in snapshot.req_d][v]
        return rates.of(v, snapshot) + inside

    minus, plus = family.choice(()), family.choice(family.opt1 | family.opt2 | family.opt3)
    return {v: (seconds(v, minus), seconds(v, plus)) for v in variables}
