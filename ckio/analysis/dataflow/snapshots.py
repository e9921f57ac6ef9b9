"""One checkpoint in a program: which sets of variables to store [Dauvergne & Hascoet 2006].

The adjoint of U; C; D in which C is checkpointed runs C once without its tape, then all of the
adjoint of D, then the adjoint of C from what was stored. With a bar for an adjoint (its forward
sweep, then its backward sweep) and Req for what the backward sweep of U still has to find:

    Req |- adjoint of [C]; D  =  PUSH(Sbk); PUSH(Snp); C;
                                 Req_D |- D̄;  POP(Snp);  Req_C |- C̄;  POP(Sbk)             (1)

`Req |- Ā` stands for Ā made to put back, from its own tape, all of Req that it overwrites:
out(Req |- Ā) = out(Ā) - Req. The derivatives are right if and only if what C̄ uses, and Req, have
kept their values:

    ((out(C) | (out(D̄) - Req_D)) - Snp) & use(C̄) = {}                                     (2, 4)
    (((out(C) | (out(D̄) - Req_D)) - Snp | (out(C̄) - Req_C)) - Sbk) & Req = {}             (3, 5)

What is said here that differs from the paper as printed:

* It takes out(C̄) <= out(C) for granted, and without that some of (7) are not minimal: here out(C)
  always includes out(C̄), which is safe, as out is "perhaps".
* "Any valid quadruplet is at least one of (7)" has an exception: what is in Req, not used by C̄, not
  in out(C̄), and overwritten by C or D̄ may be in Sbk alone instead of Snp alone. It is as many
  bytes, stored for longer, so that nothing is lost by leaving it out.
* Req_D belongs to D̄ and Req_C to C̄; the text below (1) names them the other way round.
* The left side of the last formula, for what all of it overwrites, is out(adjoint of [C]; D).
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

from ckio.actions.variables import NOTHING, Flow, Names, as_names


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What is stored for one checkpoint [C]; D, and what is left to the tapes of C̄ and D̄.

    Attributes
    ----------
    sbk : frozenset of str
        The backward snapshot: stored, and put back after C̄, for the code before C.
    snp : frozenset of str
        The snapshot: stored, and put back before C̄. What is in both sets is stored once.
    req_d, req_c : frozenset of str
        What the adjoint of D, and that of C, has to put back by itself.
    """

    sbk: Names = NOTHING
    snp: Names = NOTHING
    req_d: Names = NOTHING
    req_c: Names = NOTHING

    @property
    def stored(self) -> Names:
        """All that is stored, each once."""
        return self.sbk | self.snp


@dataclass(frozen=True, slots=True)
class Cut:
    """The place of one checkpoint: C before the cut, checkpointed, and D after it.

    Attributes
    ----------
    c : Flow
        Of C.
    c_bar : Flow
        Of the adjoint of C: its forward sweep, then its backward sweep, required to keep nothing.
    d_bar : Flow
        Of the adjoint of D, the same.
    req : frozenset of str
        What the code before C requires to find again when all of this has been reversed.
    """

    c: Flow
    c_bar: Flow
    d_bar: Flow
    req: Names = NOTHING

    def __post_init__(self) -> None:
        object.__setattr__(self, "req", as_names("Cut: req", self.req))

    @property
    def out_c(self) -> Names:
        """out(C) | out(C̄), which makes true what the paper takes for granted."""
        return self.c.out | self.c_bar.out

    @property
    def snp0(self) -> Names:
        """What every snapshot holds: out(C) & (use(C̄) | (Req - out(C̄))).                 (6)."""
        return self.out_c & (self.c_bar.use | (self.req - self.c_bar.out))

    @property
    def opt1(self) -> Names:
        """In Snp anyway; put back by Sbk, or by C̄: Req & out(C̄) & use(C̄).                (6)."""
        return self.req & self.c_bar.out & self.c_bar.use

    @property
    def opt2(self) -> Names:
        """In Sbk alone, or in Snp and put back by C̄: (Req & out(C̄)) - use(C̄).            (6)."""
        return (self.req & self.c_bar.out) - self.c_bar.use

    @property
    def opt3(self) -> Names:
        """In Snp, or put back by D̄: (out(D̄) & (use(C̄) | Req)) - out(C).                  (6)."""
        return (self.d_bar.out & (self.c_bar.use | self.req)) - self.out_c

    def choice(self, plus: Iterable[str], /) -> Snapshot:
        """The minimal snapshot with Opt_k+ = Opt_k & plus, Opt_k- = Opt_k - plus for k = 1, 2, 3.

            Sbk   = Opt_1+ | Opt_2+
            Snp   = Snp_0 | Opt_2- | Opt_3+
            Req_D = Opt_3-
            Req_C = Opt_1- | Opt_2-                                                           (7)

        As the three have nothing in common, one set says it of all. Every snapshot of this family
        is valid, and none of its sets can do with less while the others stay as they are.
        """
        plus = as_names("Cut: plus", plus)
        one, two, three = self.opt1, self.opt2, self.opt3
        return Snapshot(
            sbk=(one | two) & plus,
            snp=self.snp0 | (two - plus) | (three & plus),
            req_d=three - plus,
            req_c=(one | two) - plus,
        )

    def allows(self, snapshot: Snapshot, /) -> bool:
        """Whether the derivatives are right with this snapshot: (4) and (5)."""
        before_c_bar = (self.out_c | (self.d_bar.out - snapshot.req_d)) - snapshot.snp
        before_u = (before_c_bar | (self.c_bar.out - snapshot.req_c)) - snapshot.sbk
        return not before_c_bar & self.c_bar.use and not before_u & self.req

    @property
    def adjoint(self) -> Flow:
        """Of the adjoint of [C]; D: what an enclosing checkpoint has to know of it.

            out = (out(C̄) | ((out(D̄) | out(C)) - use(C̄))) - Req         the paper's last formula
            use = use(C) | use(C̄) | (use(D̄) - kill(C))

        `out` is the same for all of (7): so what one checkpoint stores is chosen without regard to
        those around it. `use`, which the paper does not give, is needed to nest them.
        """
        out = (self.c_bar.out | ((self.d_bar.out | self.out_c) - self.c_bar.use)) - self.req
        return Flow(self.c.use | self.c_bar.use | (self.d_bar.use - self.c.kill), out)


Policy: TypeAlias = Callable[[Cut], Snapshot]
"""Chooses from the family (7) of a cut."""


def lazy(cut: Cut, /) -> Snapshot:
    """As little as possible in snapshots, the rest is left to the tapes: no Opt_k+.

    Sbk = {},  Snp = out(C) & (Req | use(C̄)),
    Req_D = (out(D̄) & (Req | use(C̄))) - out(C),  Req_C = out(C̄) & Req                    (9)
    """
    return cut.choice(())


def eager(cut: Cut, /) -> Snapshot:
    """Snapshots that leave little to the tapes: no Opt_1-, no Opt_2-, and Opt_3- only of Req.

    Sbk = Req & out(C̄),
    Snp = (out(C) & (use(C̄) | (Req - out(C̄)))) | ((out(D̄) & (use(C̄) - Req)) - out(C)),
    Req_D = (out(D̄) & Req) - out(C),  Req_C = {}                                          (8)
    """
    return cut.choice(cut.opt1 | cut.opt2 | (cut.opt3 - cut.req))
