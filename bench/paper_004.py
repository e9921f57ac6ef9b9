"""Herrmann and Pallez (2020), section 5: their Figures 2 to 5 and Table 7 with ckio's planners.

    python bench/paper_004.py            all of it, some minutes; into bench/figures
    python bench/paper_004.py --quick    few and short chains, some seconds; only printed

Each figure becomes paper_004_figure_N.csv and .svg, which are not kept with the code. What the
paper says of them stands beside what was measured in bench/results/paper_004.txt, with the times of
Table 7.
"""

import argparse
import csv
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import paper_004_claims
import paper_004_times
import pictures
import record
from paper_004_figures import BY_TABLE, FIGURES, Point, points

FULL = {
    2: [*range(2, 60), *range(60, 1001, 10), *range(1200, 3001, 200)],
    3: [*range(10, 1001, 10), *range(1100, 5001, 100)],
    4: [*range(10, 1001, 10), *range(1100, 3001, 100)],
    5: [100, *range(500, 10_001, 500)],
}
QUICK = {2: [20, 60, 120, 300], 3: [30, 60], 4: [20, 60], 5: [100, 200, 300]}
"""Lengths by figure; the paper's text does not say which ones it took."""


def campaign(lengths: Mapping[int, Sequence[int]]) -> dict[int, list[Point]]:
    """The points of every figure."""
    return {number: list(points(figure(), lengths[number])) for number, figure in FIGURES.items()}


def save(number: int, found: Sequence[Point], into: Path) -> None:
    """One figure, as numbers and as a picture."""
    with (into / f"paper_004_figure_{number}.csv").open("w", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(["plot", "case", "schedule", "l", "makespan", "relative"])
        rows.writerows(
            [p.plot, p.case, p.schedule, p.length, f"{p.makespan:.10g}", f"{p.relative:.6f}"]
            for p in found
        )
    pictures.save(
        into / f"paper_004_figure_{number}.svg",
        curves(number, found),
        along="l",
        up="makespan beside the best",
        logarithmic=number == 5,
    )


def curves(number: int, found: Iterable[Point]) -> dict[str, dict[str, pictures.Curve]]:
    """By plot and name; of Figure 2 the paper's Revolve only, with a curve for each memory."""
    panels: dict[str, dict[str, pictures.Curve]] = {}
    for point in found:
        if number != 2 or point.schedule == BY_TABLE:
            name = f"{BY_TABLE}, {point.case}" if number == 2 else point.schedule
            curve = panels.setdefault(point.plot, {}).setdefault(name, pictures.Curve([], []))
            curve.x.append(point.length)
            curve.y.append(point.relative)
    return panels


def report(found: Mapping[int, Sequence[Point]], lengths: tuple[int, ...]) -> str:
    """Claims and times."""
    claims = [
        str(claim) for number in found for claim in paper_004_claims.of(number, found[number])
    ]
    return "\n".join(claims) + "\n\n" + paper_004_times.table(lengths)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="few and short chains, only printed")
    if parser.parse_args().quick:
        print(report(campaign(QUICK), paper_004_times.LENGTHS[:1]))
        return
    found = campaign(FULL)
    record.FIGURES.mkdir(exist_ok=True)
    for number, of_figure in found.items():
        save(number, of_figure, record.FIGURES)
    record.save("paper_004", report(found, paper_004_times.LENGTHS))


if __name__ == "__main__":
    main()
