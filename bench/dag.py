"""How long does store-or-recompute take for 70 000 values, and what is gained by the least choice?

Programs are straight-line code in many DAGs that share overwrite locations; a time loop, where the
derivatives of every step are read; and a sequence of assignments, each computed from the one
before. What is to be least are values, bytes, or seconds: by the price of a level, with seconds to
compute each value again. `seconds` are by the clock, from ValueGraph to Choice, and `cut` is what
the network and its minimum cut take of them. HiGHS and the published search are held against the
cut where they are fast enough.
"""

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random

import record

from ckio.analysis.cut import nearest_cut
from ckio.analysis.dag import Cost, Name, StoredValues, ValueGraph, network, solve
from ckio.platform import Affine

MOST_SECONDS = 10
"""What any of the large programs is to take at most."""

ROUND = Affine(latency=2e-5, per_byte=1.1e-9)
"""Seconds to store bytes and have them back."""


def several(count: int, random: Random) -> ValueGraph:
    """So many DAGs of 100 values, of which 20 are minimal and 20 are required."""
    arguments: dict[Name, tuple[Name, ...]] = {}
    overwrites: dict[Name, list[int]] = {}
    required: list[Name] = []
    for number in range(count):
        pool = [(number, k) for k in range(20)]
        for name in pool:
            arguments[name] = ()
            overwrites[name] = random.sample(range(10 * count), random.choice((1, 1, 2, 2, 3)))
        for k in range(20, 80):
            arguments[number, k] = tuple(random.sample(pool, random.choice((1, 2, 2, 3))))
            pool.append((number, k))
        for k in range(80, 100):
            arguments[number, k] = tuple(random.sample(pool, random.choice((1, 1, 2, 2))))
            required.append((number, k))
    return weighed(arguments, required, overwrites, random)


def loop(steps: int, cells: int, random: Random) -> ValueGraph:
    """A stencil of three cells, overwritten from step to step, and a derivative in each cell."""
    arguments: dict[Name, tuple[Name, ...]] = {(0, cell): () for cell in range(cells)}
    required: list[Name] = []
    for step in range(1, steps + 1):
        for cell in range(cells):
            near = [(step - 1, (cell + shift) % cells) for shift in (-1, 0, 1)]
            arguments[step, cell] = tuple(near)
        for cell in range(cells):
            arguments["d", step, cell] = ((step - 1, cell),)
            required.append(("d", step, cell))
    return weighed(arguments, required, {(0, cell): [cell] for cell in range(cells)}, random)


def assignments(count: int, random: Random) -> ValueGraph:
    """Each value computed from the one before, and all their derivatives read."""
    arguments: dict[Name, tuple[Name, ...]] = {0: ()}
    for k in range(1, count + 1):
        arguments[k] = (k - 1,)
        arguments["d", k] = (k - 1,)
    required = [("d", k) for k in range(1, count + 1)]
    return weighed(arguments, required, {0: ["end"]}, random)


def weighed(
    arguments: dict[Name, tuple[Name, ...]],
    required: list[Name],
    overwrites: dict[Name, list[int]] | dict[Name, list[str]],
    random: Random,
) -> ValueGraph:
    """Values of up to a MB, and up to a ms to compute each again."""
    return ValueGraph(
        arguments=arguments,
        required=required,
        overwrites=overwrites,
        nbytes={name: random.randint(8, 10**6) for name in arguments},
        recompute={name: random.random() * 1e-3 for name in arguments if arguments[name]},
    )


@dataclass(frozen=True)
class Case:
    """A program and what is to be least."""

    name: str
    graph: ValueGraph
    price: Cost | None


def cases(values: int) -> Iterator[Case]:
    """Programs of about so many values."""
    random = Random(1)
    graphs = {
        "DAGs of 100": several(values // 100, random),
        "time loop": loop(values // 200, 100, random),
        "assignments": assignments(values // 2, random),
    }
    for name, graph in graphs.items():
        yield Case(f"{name}, values", counted(graph), None)
        yield Case(f"{name}, bytes", graph, None)
        yield Case(f"{name}, seconds", graph, ROUND)


def counted(graph: ValueGraph) -> ValueGraph:
    """The same, each value as large as any other."""
    return ValueGraph(
        arguments=graph.arguments, required=graph.required, overwrites=graph.overwrites
    )


HEADER = ["", "values", "places", "seconds", "cut", "least", "S", "U", "computed"]


def measured(case: Case) -> list[str]:
    """A row: how large, how long, and what was chosen."""
    found: list[StoredValues] = []
    seconds = record.seconds(lambda: found.append(solve(case.graph, cost=case.price)))
    arcs = network(case.graph, case.price)
    (choice,) = found
    bound = choice.seconds if case.price else float(choice.nbytes)
    alone = record.seconds(lambda: nearest_cut(arcs, bound=bound))
    chosen = [len(choice.saved), len(choice.stored), len(choice.recomputed)]
    return [
        case.name,
        *map(str, (len(case.graph.arguments), len(case.graph.locations))),
        *(f"{taken:.2f}" for taken in (seconds, alone)),
        f"{choice.seconds:.3f} s" if case.price else f"{choice.nbytes} B",
        *map(str, chosen),
    ]


BESIDE = ["", "values", "cut", "HiGHS", "search", "HiGHS/cut", "search/cut"]


def beside(case: Case, methods: tuple[str, ...]) -> list[str]:
    """A row: seconds of the methods, and how much more than the cut the others reach."""
    sys.path.append(str(Path(__file__).parents[1] / "tests"))
    from oracles.store_or_recompute import solve_by

    taken, reached = {}, {}
    for method in ("cut", *methods):
        found: list[StoredValues] = []
        taken[method] = record.seconds(
            lambda method=method, found=found: found.append(
                solve_by(method, case.graph, cost=case.price)
            )
        )
        reached[method] = found[0].seconds if case.price else float(found[0].nbytes)
    names = ("cut", "milp", "paper")
    return [
        case.name,
        str(len(case.graph.arguments)),
        *(f"{taken[name]:.2f}" if name in taken else "-" for name in names),
        *(
            f"{reached[name] / reached['cut']:.4f}" if name in reached else "-"
            for name in names[1:]
        ),
    ]


def table(large: int, sizes: Mapping[int, tuple[str, ...]]) -> str:
    """All rows: programs of so many values, and smaller ones by the other methods too."""
    rows = [measured(case) for case in cases(large)]
    most = max(float(row[3]) for row in rows)
    others = [
        beside(case, methods)
        for size, methods in sizes.items()
        for case in cases(size)
        if case.name.startswith("DAGs")
    ]
    return "\n".join(
        [
            f"the least choice; the longest takes {most:.2f} of {MOST_SECONDS} s",
            "",
            record.columns(HEADER, rows),
            "",
            "in seconds, and by how much is reached",
            "",
            record.columns(BESIDE, others),
        ]
    )


def main() -> None:
    record.save("dag", table(70_000, {700: ("milp", "paper"), 7_000: ("milp",), 70_000: ("milp",)}))


if __name__ == "__main__":
    main()
