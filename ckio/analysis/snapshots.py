"""The variables that a checkpoint in a program stores, after Dauvergne & Hascoet (2006).

In the adjoint of U; C; D, where C is checkpointed, C is first run without its tape. Then the
adjoint of D is run, and then the adjoint of C from the stored variables. A bar denotes an adjoint
(its forward sweep, then its backward sweep), and Req the variables that the backward sweep of U
needs:

    Req |- adjoint of [C]; D  =  PUSH(Sbk); PUSH(Snp); C;
                                 Req_D |- D̄;  POP(Snp);  Req_C |- C̄;  POP(Sbk)             (1)

`Req |- Ā` denotes an Ā that restores, from its own tape, all variables of Req that it overwrites:
out(Req |- Ā) = out(Ā) - Req. The derivatives are right if and only if the variables that C̄ uses,
and those of Req, have their original values:

    ((out(C) | (out(D̄) - Req_D)) - Snp) & use(C̄) = {}                                     (2, 4)
    (((out(C) | (out(D̄) - Req_D)) - Snp | (out(C̄) - Req_C)) - Sbk) & Req = {}             (3, 5)

For example, C: u = f(u, k) overwrites u (8 bytes), and its adjoint uses u and k (16 bytes). D: k =
g(k); u = h(u) overwrites both. Therefore every snapshot contains u. It also contains k, unless D
restores k from its own tape:

    >>> c, d = Flow({"u", "k"}, {"u"}, {"u"}), Flow({"u", "k"}, {"u", "k"}, {"u", "k"})
    >>> code = successive([Plain(c, c), Plain(d, d)])
    >>> for policy in (lazy, eager):
    ...     (snapshot,) = plan(code, policy=policy)
    ...     print(sorted(snapshot.stored), sorted(snapshot.req_d))
    ['u'] ['k']
    ['k', 'u'] []

Dauvergne & Hascoet assume out(C̄) <= out(C), and without this some of (7) are not minimal. Here
out(C) always includes out(C̄). This is safe, because `out` is an upper bound. `docs/papers.md`
lists this and other places that cannot be meant as printed.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TypeAlias

from ckio.actions.checks import check_size
from ckio.actions.variables import NOTHING, Flow, Names, Step, Variables, as_names
from ckio.errors import BadInput
from ckio.platform import FREE, Affine, Level


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The variables stored for one checkpoint [C]; D, and those left to the tapes of C̄ and D̄.

    Attributes
    ----------
    sbk : frozenset of str
        The backward snapshot, which is stored, and restored after C̄ for the code before C.
    snp : frozenset of str
        The snapshot, which is stored, and restored before C̄. A variable in both sets is stored
        once.
    req_d, req_c : frozenset of str
        The variables that the adjoint of D, and that of C, restores from its own tape.
    """

    sbk: Names = NOTHING
    snp: Names = NOTHING
    req_d: Names = NOTHING
    req_c: Names = NOTHING

    @property
    def stored(self) -> Names:
        """All stored variables, each once."""
        return self.sbk | self.snp


@dataclass(frozen=True, slots=True)
class SnapshotFamily:
    """A checkpoint [C]; D, with all minimal snapshots that are sufficient for it.

    Attributes
    ----------
    c, c_bar, d_bar : Flow
        The flow of C, of its adjoint, and of the adjoint of D, if these restore nothing.
    req : frozenset of str
        Req: the variables that must have their values before C when everything has been reversed.
    """

    c: Flow
    c_bar: Flow
    d_bar: Flow
    req: Names = NOTHING

    def __post_init__(self) -> None:
        object.__setattr__(self, "req", as_names("SnapshotFamily: req", self.req))

    @property
    def out_c(self) -> Names:
        """out(C) | out(C̄), so that the assumption out(C̄) <= out(C) of the paper is true."""
        return self.c.out | self.c_bar.out

    @property
    def snp0(self) -> Names:
        """A part of every snapshot: out(C) & (use(C̄) | (Req - out(C̄))), equation (6)."""
        return self.out_c & (self.c_bar.use | (self.req - self.c_bar.out))

    @property
    def opt1(self) -> Names:
        """In Snp in any case; restored by Sbk, or by C̄: Req & out(C̄) & use(C̄), equation (6)."""
        return self.req & self.c_bar.out & self.c_bar.use

    @property
    def opt2(self) -> Names:
        """In Sbk alone, or in Snp and restored by C̄: (Req & out(C̄)) - use(C̄), equation (6)."""
        return (self.req & self.c_bar.out) - self.c_bar.use

    @property
    def opt3(self) -> Names:
        """In Snp, or restored by D̄: (out(D̄) & (use(C̄) | Req)) - out(C), equation (6)."""
        return (self.d_bar.out & (self.c_bar.use | self.req)) - self.out_c

    def choice(self, plus: Iterable[str], /) -> Snapshot:
        """Return the minimal snapshot with Opt_k+ = Opt_k & plus, Opt_k- = Opt_k - plus for k = 1,
        2, 3.

            Sbk   = Opt_1+ | Opt_2+
            Snp   = Snp_0 | Opt_2- | Opt_3+
            Req_D = Opt_3-
            Req_C = Opt_1- | Opt_2-                                                           (7)

        The three sets are disjoint, so that one set `plus` is sufficient. Every snapshot of this
        family is valid, and none of its sets can become smaller while the others are unchanged.
        """
        plus = as_names("SnapshotFamily: plus", plus)
        one, two, three = self.opt1, self.opt2, self.opt3
        return Snapshot(
            sbk=(one | two) & plus,
            snp=self.snp0 | (two - plus) | (three & plus),
            req_d=three - plus,
            req_c=(one | two) - plus,
        )

    def allows(self, snapshot: Snapshot, /) -> bool:
        """Return whether the derivatives are right with this snapshot, by (4) and (5)."""
        before_c_bar = (self.out_c | (self.d_bar.out - snapshot.req_d)) - snapshot.snp
        before_u = (before_c_bar | (self.c_bar.out - snapshot.req_c)) - snapshot.sbk
        return not before_c_bar & self.c_bar.use and not before_u & self.req

    @property
    def adjoint(self) -> Flow:
        """The flow of the adjoint of [C]; D: all that an enclosing checkpoint needs to know.

            out = (out(C̄) | ((out(D̄) | out(C)) - use(C̄))) - Req         the paper's last formula
            use = use(C) | use(C̄) | (use(D̄) - kill(C))

        `out` is the same for all snapshots of (7). Therefore each checkpoint can choose its
        snapshot independently of the enclosing ones. `use`, which the paper does not give, is
        needed to nest checkpoints.
        """
        out = (self.c_bar.out | ((self.d_bar.out | self.out_c) - self.c_bar.use)) - self.req
        return Flow(self.c.use | self.c_bar.use | (self.d_bar.use - self.c.kill), out)


Policy: TypeAlias = Callable[[SnapshotFamily], Snapshot]
"""A choice from the family (7)."""


def lazy(family: SnapshotFamily, /) -> Snapshot:
    """Choose the smallest snapshots, and leave the rest to the tapes: no Opt_k+.

    Sbk = {},  Snp = out(C) & (Req | use(C̄)),
    Req_D = (out(D̄) & (Req | use(C̄))) - out(C),  Req_C = out(C̄) & Req                    (9)
    """
    return family.choice(())


def eager(family: SnapshotFamily, /) -> Snapshot:
    """Choose snapshots that leave little to the tapes: no Opt_1-, no Opt_2-, Opt_3- only of Req.

    Sbk = Req & out(C̄),
    Snp = (out(C) & (use(C̄) | (Req - out(C̄)))) | ((out(D̄) & (use(C̄) - Req)) - out(C)),
    Req_D = (out(D̄) & Req) - out(C),  Req_C = {}                                          (8)
    """
    return family.choice(family.opt1 | family.opt2 | (family.opt3 - family.req))


@dataclass(frozen=True, slots=True)
class Plain:
    """Code without a checkpoint in it, whose adjoint stores everything that it needs on a tape.

    Attributes
    ----------
    forward : Flow
        The flow of the code.
    adjoint : Flow
        The flow of its adjoint: the forward sweep, then the backward sweep, without restoring.
    pushed : mapping of str to int
        Bytes of tape to restore a variable, if they differ from its size. They are fewer if only
        some of its elements are overwritten, and more if elements are overwritten repeatedly.
    """

    forward: Flow
    adjoint: Flow
    pushed: Mapping[str, int] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        pushed = {name: check_size(f"pushed[{name!r}]", it) for name, it in self.pushed.items()}
        object.__setattr__(self, "pushed", MappingProxyType(pushed))

    @staticmethod
    def of(step: Step, /) -> "Plain":
        """Return one step of a chain, which is recorded and reversed immediately."""
        return Plain(step.forward, step.adjoint)


@dataclass(frozen=True, slots=True)
class Checkpointed:
    """[C]; D: the code C, checkpointed, then the code D. There may be checkpoints in both.

    Attributes
    ----------
    first, rest : Plain or Checkpointed
        C and D.
    forward, adjoint : Flow
        The flows of the whole code, which follow from C and D.
    """

    first: "Code"
    rest: "Code"
    forward: Flow = field(init=False, compare=False)
    adjoint: Flow = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "forward", self.first.forward.then(self.rest.forward))
        object.__setattr__(self, "adjoint", self.family(NOTHING).adjoint)

    def family(self, req: Names, /) -> SnapshotFamily:
        """Return the snapshots of its outermost checkpoint, if the code before requires `req`."""
        return SnapshotFamily(self.first.forward, self.first.adjoint, self.rest.adjoint, req)


Code: TypeAlias = Plain | Checkpointed


def successive(parts: Sequence[Code], /) -> Code:
    """Return [C_1]; [C_2]; ... and the last part, which is not checkpointed.

    Raises BadInput without any part.
    """
    if not parts:
        raise BadInput("successive: no code; give at least one part")
    code = parts[-1]
    for part in reversed(parts[:-1]):
        code = Checkpointed(part, code)
    return code


def _walk(
    code: Code, req: Names, choose: Callable[[Checkpointed, Names], Snapshot]
) -> Iterator[tuple[Plain, Names] | tuple[Checkpointed, Snapshot]]:
    """Yield all parts of a code: plain ones with their Req, others with the chosen snapshot.

    [C]; D comes before the parts of D, and these before the parts of C, in the order in which a run
    stores snapshots. Req of D is Req_D, and Req of C is Req_C. The function is not recursive,
    because successive checkpoints may be nested thousands of levels deep.
    """
    left = [(code, req)]
    while left:
        part, required = left.pop()
        if isinstance(part, Plain):
            yield part, required
        else:
            snapshot = choose(part, required)
            yield part, snapshot
            left += [(part.first, snapshot.req_c), (part.rest, snapshot.req_d)]


def plan(code: Code, /, req: Iterable[str] = (), *, policy: Policy = lazy) -> tuple[Snapshot, ...]:
    """Return the snapshot of each checkpoint, in the order in which a run stores them.

    For [C]; D this is first its own snapshot, then those in D, then those in C. `req` is Req of the
    code itself.
    """
    parts = _walk(code, as_names("plan: req", req), lambda part, req: policy(part.family(req)))
    return tuple(it for _, it in parts if isinstance(it, Snapshot))


@dataclass(frozen=True, kw_only=True)
class SnapshotPrices:
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
        return self.size(variable) * (once + reads * level.read.per_byte)

    def taped(self, variable: str, plain: Plain, /) -> float:
        """Return the seconds of one variable on the tape of code that restores it."""
        price = self.tape.write.per_byte + self.tape.read.per_byte + self.tape.discard.per_byte
        return self.pushed(variable, plain) * price

    def pushed(self, variable: str, plain: Plain, /) -> int:
        """Return the bytes of one variable on the tape of code that restores it."""
        if variable not in plain.adjoint.out:
            return 0
        pushed = plain.pushed.get(variable)
        return self.size(variable) if pushed is None else pushed

    def size(self, variable: str, /) -> int:
        """Return the bytes of a variable. Raise BadInput if they are not known."""
        if variable not in self.nbytes:
            raise BadInput(
                f"SnapshotPrices: nbytes does not say how large {variable} is; add its bytes"
            )
        return self.nbytes[variable]


@dataclass(frozen=True, slots=True)
class SnapshotCosts:
    """The cost of one plan of snapshots.

    Attributes
    ----------
    snapshots : tuple of Snapshot
        The snapshots, in the order of `plan`.
    stored, taped : int
        Bytes of all snapshots, and additional bytes of tapes to restore variables.
    seconds : float
        Seconds to write, read and discard both.
    """

    snapshots: tuple[Snapshot, ...]
    stored: int
    taped: int
    seconds: float


def costs_of(
    code: Code,
    snapshots: Sequence[Snapshot],
    /,
    req: Iterable[str] = (),
    *,
    prices: SnapshotPrices,
) -> SnapshotCosts:
    """Return the cost of some snapshots of a code, and of the variables left to its tapes."""
    left = iter(snapshots)
    stored, taped, seconds = 0, 0, 0.0
    for part, it in _walk(code, as_names("costs_of: req", req), lambda *_: next(left)):
        if isinstance(it, Snapshot):
            stored += sum(map(prices.size, it.stored))
            seconds += sum(prices.of(name, it) for name in it.stored)
        elif isinstance(part, Plain):
            taped += sum(prices.pushed(name, part) for name in it)
            seconds += sum(prices.taped(name, part) for name in it)
    return SnapshotCosts(tuple(snapshots), stored, taped, seconds)


_BySide: TypeAlias = tuple[Mapping[str, float], Mapping[str, float]]
"""The seconds of each variable if it is not in Req, and if it is."""


def cheapest(
    code: Code, /, req: Iterable[str] = (), *, prices: SnapshotPrices
) -> tuple[tuple[Snapshot, ...], float]:
    """Return the snapshots with the fewest seconds for all checkpoints together, and the seconds.

    The policies of Dauvergne & Hascoet treat every checkpoint separately. But the variables that
    [C]; D leaves to D̄ are Req of the checkpoints in D. These store the variables or leave them to
    a later tape. Therefore their cost is known only there. The variables are independent, and
    between two parts of the code it only matters whether a variable is in Req. Therefore, with

        S(v, code, r)    least seconds to store v in snapshots and tapes of the code; r: v in Req

        S(v, plain, r)   = seconds of v on its tape, if r and v in out(adjoint), else 0
        S(v, [C]; D, r)  = min over v in Opt_k+ or Opt_k- of
                           seconds of v in Snp and Sbk + S(v, C, v in Req_C) + S(v, D, v in Req_D)

    the minimum over the whole family (7), for all checkpoints jointly, is computed from the
    innermost part to the outermost, and the choices are then read from the outermost to the
    innermost. Among equal plans the lazy one is taken.

    In the example above, with a second per written byte, u costs 8 s with every policy. The lazy
    policy pays 16 s for k on the tape of D, and the eager policy 16 s for k in the snapshot. If the
    tape of D contains only the 2 bytes of k that D overwrites, the lazy choice costs 2 s:

    >>> disk = Level(name="disk", write=Affine(per_byte=1))
    >>> prices = SnapshotPrices(nbytes={"u": 8, "k": 16}, snapshots=disk, tape=disk)
    >>> c, d = Flow({"u", "k"}, {"u"}, {"u"}), Flow({"u", "k"}, {"u", "k"}, {"u", "k"})
    >>> cheapest(successive([Plain(c, c), Plain(d, d)]), prices=prices)[1]
    24.0
    >>> cheapest(successive([Plain(c, c), Plain(d, d, {"k": 2})]), prices=prices)[1]
    10.0

    Raises BadInput if a variable has no size.
    """
    required = as_names("cheapest: req", req)
    parts = [part for part, _ in _walk(code, required, lambda *_: Snapshot())]
    flows = [flow for part in parts for flow in (part.forward, part.adjoint)]
    variables = sorted(required.union(*(flow.use | flow.out for flow in flows)))
    least: dict[int, _BySide] = {}
    plus: dict[int, tuple[Names, Names]] = {}
    for part in reversed(parts):  # C and D before [C]; D
        if isinstance(part, Plain):
            taped = {v: prices.taped(v, part) for v in variables}
            least[id(part)] = dict.fromkeys(variables, 0.0), taped
        elif id(part) not in least:
            sides = [_sides(part, req, variables, least, prices) for req in ((), variables)]
            without, with_ = ({v: min(pair) for v, pair in side.items()} for side in sides)
            least[id(part)] = without, with_
            lower = [[v for v, (minus, more) in side.items() if more < minus] for side in sides]
            plus[id(part)] = frozenset(lower[0]), frozenset(lower[1])

    def choose(part: Checkpointed, req: Names) -> Snapshot:
        without, with_ = plus[id(part)]
        return part.family(req).choice((with_ & req) | (without - req))

    snapshots = tuple(it for _, it in _walk(code, required, choose) if isinstance(it, Snapshot))
    return snapshots, sum(least[id(code)][v in required][v] for v in variables)


def _sides(
    part: Checkpointed,
    req: Iterable[str],
    variables: Sequence[str],
    least: Mapping[int, _BySide],
    prices: SnapshotPrices,
) -> dict[str, tuple[float, float]]:
    """Return, for each variable, S(v, [C]; D, r) if it is in Opt_k-, and if it is in Opt_k+."""
    family = part.family(frozenset(req))
    first, rest = least[id(part.first)], least[id(part.rest)]

    def seconds(v: str, snapshot: Snapshot) -> float:
        inside = first[v in snapshot.req_c][v] + rest[v in snapshot.req_d][v]
        return prices.of(v, snapshot) + inside

    minus, plus = family.choice(()), family.choice(family.opt1 | family.opt2 | family.opt3)
    return {v: (seconds(v, minus), seconds(v, plus)) for v in variables}


def compare_snapshots(
    variables: Variables, steps: int, level: Level | None = None, /
) -> dict[str, SnapshotCosts]:
    """Return the lazy, the eager and the cheapest snapshots of a chain of checkpointed steps.

    Parameters
    ----------
    variables : Variables
        The arrays of a state, and how steps use and overwrite them.
    steps : int
        The length of the chain. Each step except the last has a checkpoint before it.
    level : Level or None
        The level of snapshots and tapes. Without a level, seconds are the bytes that are written.

    >>> step = Step(Flow({"u", "k"}, {"u"}, {"u"}))
    >>> thaw = Step(Flow({"u", "k"}, {"u", "k"}, {"u", "k"}))
    >>> chain = Variables({"u": 8, "k": 16}, [step, step, thaw])
    >>> for policy, costs in compare_snapshots(chain, 3).items():
    ...     print(policy, [sorted(it.stored) for it in costs.snapshots], costs.stored, costs.taped)
    lazy [['u'], ['u']] 16 16
    eager [['u'], ['k', 'u']] 32 0
    cheapest [['u'], ['u']] 16 16
    """
    over = variables.over(steps)
    alike = {step: Plain.of(step) for step in over.different}
    code = successive([alike[over[i]] for i in range(steps)])
    level = level or Level(name="bytes", write=Affine(per_byte=1.0), read=FREE, discard=FREE)
    prices = SnapshotPrices(nbytes=variables.nbytes, snapshots=level, tape=level)
    plans = {
        "lazy": plan(code),
        "eager": plan(code, policy=eager),
        "cheapest": cheapest(code, prices=prices)[0],
    }
    return {name: costs_of(code, snapshots, prices=prices) for name, snapshots in plans.items()}
