"""The figures that a reader wants, on one page: docs/benchmarks.md, made from bench/results.

python bench/page.py        writes the page anew, after a bench has kept new results
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import record
from record import RESULTS

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "benchmarks.md"
README = ROOT / "README.md"
GAINS = re.compile(
    r"(?<=<!-- gains: python bench/page.py writes this table -->\n).*?(?=<!-- end -->)", re.DOTALL
)

HEAD = """\
# Benchmarks

Every figure here was measured by a script of `bench/`, and every table is a part of the file
that the script wrote, with the date and the machine in its first lines. Times of two runs can
be compared only within one file: a ratio beside the raw limit, or beside another program, is
always taken in the same run. `python bench/NAME.py` measures anew on your machine; `python
bench/page.py` makes this page.
"""


@dataclass(frozen=True)
class Figure:
    """A part of a file of results: its lines from the first that matches `begin` to an empty one.

    Attributes
    ----------
    question, answer : str
        The heading, and how the table is to be read.
    script, file : str
        The bench, and what it wrote, both without ending.
    begin : str
        A regular expression; by default the first line below the one on the machine.
    rows : str
        A regular expression for the lines that are shown, besides the first one.
    width : int
        Characters of a line that are shown; what is longer is in the file.
    """

    question: str
    answer: str
    script: str
    file: str
    begin: str = ""
    rows: str = ""
    width: int = 150


FIGURES: Sequence[Figure] = (
    Figure(
        "How far off is a prediction?",
        "A calibrated machine, schedules of several planners, simulated and then run. `error`"
        " is predicted over measured, less one; `at pace` is the same with the pace of the"
        " computer at that moment taken out.",
        "fidelity",
        "fidelity",
        "^schedule ",
    ),
    Figure(
        "How fast is a checkpoint written and read?",
        "`ratio` is the time of a backend over that of the raw call that stands beside it, in"
        " the same round. The directory and the archive verify each checkpoint by its checksum.",
        "backends",
        "backends",
        "^ .*beside",
    ),
    Figure(
        "How long does planning take?",
        "Processor seconds of `hrevolve`, with the memory of the whole process and what"
        " checking and costing the schedule take; `l + 1` steps.",
        "bench_planning",
        "planning",
        "^hrevolve  ",
        "^arch_1|^RAM 50|^RAM 20",
    ),
    Figure(
        "How do planners compare with those of checkpoint_schedules?",
        "Both plan the same chain; `forward steps` is what each schedule takes.",
        "bench_planning",
        "planning",
        "^checkpoint_schedules",
    ),
    Figure(
        "What does a whole gradient take beside other programs?",
        "One model, the same slots in memory and in a directory; all gradients are equal.",
        "peers",
        "peers",
        "^20 slots in memory, 20 in a directory",
    ),
    Figure(
        "And inside JAX?",
        "The gradient of a long scan, beside a plain scan, nested `jax.checkpoint`, equinox and"
        " diffrax.",
        "jax_peers",
        "jax_peers",
        "^ .*first s",
    ),
    Figure(
        "What does the runner add to each action?",
        "Processor time per action of 8 bytes in memory, so that only the runner is seen.",
        "runner",
        "runner",
        "^ .*runner",
    ),
    Figure(
        "What does overlap gain over other schedules?",
        "The makespan of each planner's schedule with overlap, beside that of the plan made for"
        " overlap and a lower bound, on ten machines.",
        "overlap_planning",
        "overlap_planning_machines",
        "^ten machines",
        width=160,
    ),
    Figure(
        "How long is a simulation of many ranks?",
        "Ranks that are alike are simulated as one group.",
        "ranks",
        "ranks",
        "^ .*ranks  groups",
    ),
    Figure(
        "What do codecs reach on restart data?",
        "GB/s of raw bytes.",
        "compressed",
        "codecs",
        "^ .*stored/raw",
    ),
)


def page() -> str:
    """Return the text of the page."""
    return HEAD + "".join(f"\n{section(figure)}" for figure in FIGURES)


def section(figure: Figure) -> str:
    """Return a figure with its question, its table and where the whole of it lies."""
    lines = (record.RESULTS / f"{figure.file}.txt").read_text(encoding="utf-8").splitlines()
    when, machine = lines[0].partition(": ")[2], re.sub(r" \(spread of one copy\).*", "", lines[1])
    table = "\n".join(line[: figure.width].rstrip() for line in excerpt(figure, lines[2:]))
    path = f"../bench/results/{figure.file}.txt"
    return (
        f"## {figure.question}\n\n{figure.answer}\n\n```text\n{table}\n```\n\n"
        f"{when}, {machine}; [all of it]({path}), by `python bench/{figure.script}.py`.\n"
    )


def excerpt(figure: Figure, lines: Sequence[str]) -> Iterator[str]:
    """Yield the lines of a table: up to an empty one, and of its rows those that are asked for."""
    first = next(i for i, line in enumerate(lines) if re.search(figure.begin or r"\S", line))
    yield lines[first]
    for line in lines[first + 1 :]:
        if not line:
            return
        if re.search(figure.rows, line):
            yield line


_VORTICITY: Sequence[tuple[str, str]] = (
    ("numpy, every tape kept", "numpy, every tape stored"),
    ("ckio, mixed", "**ckio**, states and tapes"),
    ("ckio, hrevolve", "**ckio**, states alone"),
    ("pyadjoint", "pyadjoint with checkpoint_schedules"),
    ("pyrevolve", "pyrevolve"),
)
_SCAN: Sequence[tuple[str, str]] = (
    ("plain scan", "every state stored"),
    ("ckio", "**ckio**, `checkpointed_scan`"),
    ("ckio inside jax.jit", "**ckio**, inside `jax.jit`"),
    ("nested jax.checkpoint", "nested `jax.checkpoint`"),
    ("equinox, 100 checkpoints", "equinox, 100 checkpoints"),
)
"""Rows of the results, and what the README calls them."""


def gains() -> str:
    """Return the README's table: seconds and memory of ckio and of others, by two benches."""
    head = "| gradient | by | seconds | memory, MB |\n|---|---|--:|--:|\n"
    peers = cells((RESULTS / "peers.txt").read_text().split("\n\n")[-1])
    scans = cells((RESULTS / "jax_peers.txt").read_text())
    rows = [("vorticity, in numpy", *it, 0, 5) for it in _VORTICITY]
    rows += [("scan, in JAX", *it, 1, 4) for it in _SCAN]
    lines, above = [], ""
    for problem, name, label, seconds, memory in rows:
        row = (peers if seconds == 0 else scans)[name]
        shown = problem if problem != above else ""
        lines.append(f"| {shown} | {label} | {row[seconds]} | {row[memory]} |\n")
        above = problem
    return head + "".join(lines)


def cells(text: str) -> dict[str, list[str]]:
    """Return the numbers of each row of a table by its first column, without those in brackets."""
    rows = (re.split(r"\s{2,}", re.sub(r" \([\d.]+\)", "", line)) for line in text.splitlines())
    return {row[0]: row[1:] for row in rows if len(row) > 3}


def readme() -> str:
    """Return the README with its table made anew."""
    return GAINS.sub(lambda _: gains(), README.read_text(encoding="utf-8"))


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    README.write_text(readme(), encoding="utf-8")
