"""What Herrmann and Pallez (2020) say of their figures, beside what was measured here."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import comb

from bench.papers.hrevolve_figures import BY_TABLE, SLOTS, Point

Points = Sequence[Point]


@dataclass(frozen=True)
class Claim:
    """A statement of the paper, whether the points agree, and the figures that say so.

    `within` limits the agreement, where it is not for all points.
    """

    place: str
    statement: str
    agrees: bool
    measured: str
    within: str = ""

    def __str__(self) -> str:
        verdict = f"agrees {self.within}".rstrip() if self.agrees else "differs"
        return f"{self.place}: {self.statement}\n  {verdict}: {self.measured}"


def of(number: int, points: Iterable[Point]) -> list[Claim]:
    """The claims on one figure, as far as these points can say."""
    found = list(points)
    return [claim(found) for claim in CLAIMS[number]]


def worst(points: Iterable[Point], schedule: str, plot: str = "") -> Point:
    """The point that is farthest above the best."""
    return max(
        (p for p in points if p.schedule == schedule and p.plot.startswith(plot)),
        key=lambda point: point.relative,
    )


def curve(points: Iterable[Point], schedule: str, plot: str, case: str = "") -> list[Point]:
    return [
        p
        for p in points
        if p.schedule == schedule and p.plot.startswith(plot) and p.case.endswith(case)
    ]


def percent(relative: float) -> str:
    return f"{100 * (relative - 1):.1f}%"


def at(point: Point) -> str:
    where = ", ".join(part for part in (point.plot, point.case, f"l = {point.length}") if part)
    return f"{percent(point.relative)} ({where})"


# --- Figure 2 --------------------------------------------------------------------------------


def below_28_percent(points: Points) -> Claim:
    by_table, ours = worst(points, BY_TABLE), worst(points, "revolve")
    return Claim(
        "Figure 2",
        "the overhead of Revolve is less than 28% in all cases",
        by_table.relative < 1.28,
        f"Revolve by table {at(by_table)} at most; ckio's, with the fewest writes, {at(ours)}",
    )


def more_with_cost_and_slots(points: Points) -> Claim:
    most = {
        (letter, slots): max(
            p.relative for p in curve(points, BY_TABLE, f"2{letter}", f"c = {slots}")
        )
        for letter in "abcd"
        for slots in SLOTS
    }
    rising = all(most[a, c] <= most[b, c] for a, b in pairwise("abcd") for c in SLOTS)
    growing = all(most[a, c] <= most[a, d] for c, d in pairwise(SLOTS) for a in "abcd")
    ends = ", ".join(f"c = {c}: {percent(most['a', c])} to {percent(most['d', c])}" for c in SLOTS)
    return Claim(
        "Figure 2",
        "higher costs and more slots lead to more overhead",
        rising and growing,
        f"largest overhead from w = r = 0.5 to 3: {ends}",
    )


def bounces(points: Points) -> Claim:
    """Between beta(c, t) and beta(c, t + 1) every step is taken t + 1 times at most: one bounce."""
    parts, agrees = [], True
    for letter in "ab":
        ten = curve(points, BY_TABLE, f"2{letter}", "c = 10")
        peaks = [
            max(part, key=lambda point: point.relative)
            for t in range(1, 6)
            if (part := [p for p in ten if comb(10 + t, t) <= p.length < comb(11 + t, t + 1)])
        ]
        agrees &= all(p.relative - 1 > 0.5 * (peaks[0].relative - 1) for p in peaks[1:])
        rest = ", ".join(f"{percent(p.relative)} at {p.length}" for p in peaks)
        parts.append(f"2{letter}: {rest}")
    return Claim(
        "Figure 2",
        "with c = 10 the overhead bounces back to a value close to its largest",
        agrees,
        "its peaks, one for each repetition more: " + "; ".join(parts),
    )


def free_of_charge(points: Points) -> Claim:
    """Not a claim of theirs, but what its pictures hide."""
    cheap = [p for p in points if p.schedule == "revolve" and p.plot[:2] in ("2a", "2b")]
    most = max(cheap, key=lambda p: p.relative)
    return Claim(
        "Figures 2a, 2b",
        "Revolve, which ignores the costs, is slower than H-Revolve",
        most.relative > 1,
        f"Revolve with the fewest writes is {percent(most.relative)} slower at most; it is the"
        " choice among equal splits that costs",
    )


# --- Figure 3 --------------------------------------------------------------------------------


def below_3_percent(points: Points) -> Claim:
    names = "periodic-disk-revolve", "per-rev-revolve"
    above = [p for p in points if p.schedule in names and p.relative >= 1.03]
    last = max((p.length for p in above), default=0)
    most = ", ".join(f"{name} {at(worst(points, name))}" for name in names)
    return Claim(
        "Figure 3",
        "Per-Disk-Revolve and Per-Rev-Revolve are less than 3% above Disk-Revolve",
        last < max(p.length for p in points),
        f"at most {most}",
        within=f"beyond l = {last}" if last else "",
    )


def converges(points: Points) -> Claim:
    parts, agrees = [], True
    for letter in "abcd":
        found = curve(points, "periodic-disk-revolve", f"3{letter}")
        half = len(found) // 2
        first, last = (max(p.relative for p in part) for part in (found[:half], found[half:]))
        agrees &= last <= first
        parts.append(f"3{letter}: {percent(first)}, then {percent(last)}")
    return Claim(
        "Figure 3",
        "Per-Disk-Revolve converges to the optimum as chains grow",
        agrees,
        "largest overhead in either half of the lengths, " + "; ".join(parts),
    )


def overlap_in_3d(points: Points) -> Claim:
    apart = {
        letter: max(
            abs(a.makespan - b.makespan)
            for a, b in zip(
                curve(points, "periodic-disk-revolve", f"3{letter}"),
                curve(points, "per-rev-revolve", f"3{letter}"),
                strict=True,
            )
        )
        for letter in "abcd"
    }
    return Claim(
        "Figure 3d",
        "Per-Disk-Revolve and Per-Rev-Revolve are the same there",
        apart["d"] == 0,
        "largest difference in u_f " + ", ".join(f"3{a}: {d:g}" for a, d in apart.items()),
    )


def disk_revolve_is_optimal(points: Points) -> Claim:
    least = min((p for p in points if p.schedule == "hrevolve"), key=lambda p: p.relative)
    same = sum(p.relative == 1 for p in points if p.schedule == "hrevolve")
    total = sum(p.schedule == "hrevolve" for p in points)
    return Claim(
        "Figure 3",
        "Disk-Revolve is the optimum on two levels",
        least.relative == 1,
        f"hrevolve on the same machine has the same makespan at {same} of {total} points",
    )


# --- Figures 4 and 5 -------------------------------------------------------------------------


def folds(points: Points) -> list[str]:
    return sorted({p.schedule for p in points if p.schedule.startswith("disk-revolve")})


def below_5_percent(points: Points) -> Claim:
    found = [p for p in points if p.schedule in folds(points)]
    within = sum(p.relative < 1.05 for p in found)
    most = max(found, key=lambda p: p.relative)
    return Claim(
        "Figure 4",
        "Disk-Revolve on folded levels is in general less than 5% above H-Revolve",
        2 * within > len(found),
        f"{within} of {len(found)} points are; {at(most)} at most",
    )


def runs_out_of_slots(points: Points) -> Claim:
    parts, agrees = [], True
    for plot in sorted({p.plot for p in points}):
        ends = [curve(points, name, plot)[-1].length for name in folds(points)]
        agrees &= ends == sorted(ends)
        parts.append(f"{plot}: {', '.join(map(str, ends))}")
    return Claim(
        "Figure 4",
        "it fails beyond some length, earlier where the disk is taken to be cheaper",
        agrees,
        f"longest l with w = r = 10, 15, 20, of {max(p.length for p in points)} tried, "
        + "; ".join(parts),
    )


def poor_when_short(points: Points) -> Claim:
    parts, agrees = [], True
    for plot in sorted({p.plot for p in points}):
        found = curve(points, "per-rev-revolve", plot)
        best = min(found, key=lambda p: p.relative)
        agrees &= found[0].relative > best.relative
        parts.append(
            f"{plot}: {percent(found[0].relative)} at l = {found[0].length}, least"
            f" {percent(best.relative)} at {best.length}"
        )
    return Claim("Figure 4", "Per-Rev-Revolve is poor on small graphs", agrees, "; ".join(parts))


def grows_linearly(points: Points) -> Claim:
    parts, agrees = [], True
    for plot in sorted({p.plot for p in points}):
        found = curve(points, "per-rev-revolve", plot)
        middle = found[len(found) // 2]
        agrees &= found[1].relative < middle.relative < found[-1].relative
        parts.append(
            f"{plot}: "
            + ", ".join(
                f"{p.relative:.2f} at {p.length}" for p in (found[0], found[1], middle, found[-1])
            )
        )
    return Claim(
        "Figure 5",
        "the loss of Per-Rev-Revolve grows slowly, but linearly",
        agrees,
        "; ".join(parts),
    )


def about_four(points: Points) -> Claim:
    parts, agrees = [], True
    for plot in sorted({p.plot for p in points}):
        found = curve(points, BY_TABLE, plot)
        low, high = min(p.relative for p in found), max(p.relative for p in found)
        multistage = curve(points, "multistage", plot)
        agrees &= low > 3 and high < 6
        parts.append(
            f"{plot}: {low:.2f} to {high:.2f}, {found[-1].relative:.2f} at l = {found[-1].length}"
            f" (ckio's multistage {multistage[-1].relative:.2f})"
        )
    return Claim(
        "Figure 5",
        "Revolve is 4 times as slow as H-Revolve, whatever the length",
        agrees,
        "; ".join(parts),
    )


def printed_is_repaired(points: Points) -> Claim:
    lost = [p for p in points if p.schedule == "hrevolve-2020" and p.case != ""]
    most = max(lost, key=lambda p: p.relative)
    return Claim(
        "Figures 4, 5",
        "Theorem 2 as printed is the optimum",
        most.relative == 1,
        f"hrevolve-2020 is {percent(most.relative)} above hrevolve at most on these machines",
    )


CLAIMS: dict[int, Sequence[Callable[[Points], Claim]]] = {
    2: (below_28_percent, more_with_cost_and_slots, bounces, free_of_charge),
    3: (below_3_percent, converges, overlap_in_3d, disk_revolve_is_optimal),
    4: (below_5_percent, runs_out_of_slots, poor_when_short, printed_is_repaired),
    5: (grows_linearly, about_four, printed_is_repaired),
}
