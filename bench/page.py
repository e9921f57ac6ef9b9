"""Write docs/benchmarks.md, and the README's table, from the files in bench/results.

Run it after a bench has stored new results.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bench import ROOT, record
from bench.record import RESULTS

PAGE = ROOT / "docs" / "benchmarks.md"
README = ROOT / "README.md"
GAINS = re.compile(
    r"(?<=<!-- gains: python -m bench.page writes this table -->\n).*?(?=<!-- end -->)", re.DOTALL
)

HEAD = """\
# Benchmarks

Does ckio pay for your model on your machine? `ckio demo --model FILE.py --steps N --ram 1GiB`
measures it beside storing every tape ([your own model](own_model.md#on-the-command-line)).

Each table is an excerpt of a file that a script of `bench/` wrote; compare times only within one.
To measure on your machine, run `python -m bench.NAME --record`, and then `python -m bench.page`,
which writes this page again. [All results](../bench/results) are more.
"""


@dataclass(frozen=True)
class Figure:
    """A part of a file of results: its lines from the first that matches `begin` to an empty one.

    Attributes
    ----------
    question, answer : str
        The heading, and the text above the table, which explains its columns.
    script, file : str
        The module of the bench, and the file that it wrote, without ending.
    begin : str
        A regular expression; by default the first line below the one on the machine.
    rows : str
        A regular expression that selects the lines after the first one.
    last : str
        The title of the last column that is shown; by default all columns are.
    """

    question: str
    answer: str
    script: str
    file: str
    begin: str = ""
    rows: str = ""
    last: str = ""


FIGURES: Sequence[Figure] = (
    Figure(
        "How accurate is a prediction?",
        "Runs after a calibration. `error` is the predicted time over the measured one, minus one,"
        " and `at pace` the same at the processor's speed of that moment. `spread` is relative to"
        " the median.",
        "fidelity",
        "fidelity",
        "^schedule ",
        "^hrevolve|^mixed",
        "at pace",
    ),
    Figure(
        "How fast are checkpoints written and read?",
        "`beside` is the fastest way to move the same bytes without ckio, and `at most` the largest"
        " ratio that ckio allows itself. Directory and archive verify checksums.",
        "backends",
        "backends",
        "^ .*beside",
        "(64 MiB|1 KiB)|^hdf5",
    ),
    Figure(
        "How do planners compare with those of checkpoint_schedules?",
        "Both packages plan the same chain. The last columns are the forward steps.",
        "planning",
        "planning",
        "^checkpoint_schedules",
        "n = 1001",
    ),
    Figure(
        "How long does a gradient take, compared with other programs?",
        "All gradients are equal, and all rows with checkpoints have the same slots. Numbers in"
        " parentheses are relative to `ckio, mixed`. Files are in the page cache; only ckio"
        " verifies checksums. `seconds` are planning, the steps of the model, and everything else"
        " (`beside`). `memory` is the growth of the process. `forward` counts forward steps, and"
        " `moved` the bytes written and read.",
        "peers.vorticity",
        "peers",
        "^20 slots in memory, 20 in a directory",
        last="error",
    ),
    Figure(
        "How long does a gradient in JAX take?",
        "A scan of 10,000 steps with 256 × 256 cells. `first s` includes compilation. `above"
        " forward` is the peak memory beyond that of the forward run.",
        "peers.jax_peers",
        "jax_peers",
        "^ .*first s",
    ),
    Figure(
        "How long does a gradient on a GPU take?",
        "The model is a wave in three dimensions (`examples/wave3d`), with a state of 0.5 GB."
        " Checkpoints may take 8 GB of the memory of the device. `nested` is nested"
        " `jax.checkpoint`, `offloaded` a policy of JAX that copies a state to the host every ten"
        " steps, and `torch` nested `torch.utils.checkpoint` with a compiled step, measured half an"
        " hour before on a device of the same kind.",
        "device",
        "device",
        "^checkpoints",
        last="peak GB",
    ),
    Figure(
        "What does it cost in programs of other frameworks?",
        "Programs of `examples/`, some with more steps, with all states in memory (`none`), with"
        " the checkpoints of their framework, and with those of ckio. `error` is the relative"
        " difference of the gradient from that with all states, and `Taylor` the order of a Taylor"
        " test, which should be 2. Seconds and the peak memory of the process, most of which"
        " belongs to the libraries, are medians of three runs.",
        "peers.applications",
        "applications",
        "^program, checkpoints of",
        "Picard|shallow|Devito",
    ),
)

_WIDTH = 150
"""Characters of a line that are shown; the file has the whole line."""


def page() -> str:
    """Return the text of the page."""
    return HEAD + "".join(f"\n{section(figure)}" for figure in FIGURES)


def section(figure: Figure) -> str:
    """Return a figure with its question, its table, and a link to the whole file."""
    lines = (record.RESULTS / f"{figure.file}.txt").read_text(encoding="utf-8").splitlines()
    when, machine = lines[0].partition(": ")[2], re.sub(r" \(spread of one copy\).*", "", lines[1])
    rows = list(excerpt(figure, lines[2:]))
    width = max(row.find(figure.last) for row in rows) + len(figure.last) or _WIDTH
    table = "\n".join(row[:width].rstrip() for row in rows)
    path = f"../bench/results/{figure.file}.txt"
    return (
        f"## {figure.question}\n\n{figure.answer}\n\n```text\n{table}\n```\n\n"
        f"Measured {when} on {machine} by `python -m bench.{figure.script}`:"
        f" [all results]({path}).\n"
    )


def excerpt(figure: Figure, lines: Sequence[str]) -> Iterator[str]:
    """Yield the lines of a table up to an empty one: its first line, and the rows that match."""
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
"""Names of rows in the results, and in the README."""


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
    """Return the numbers of each row by its first column, without those in parentheses."""
    rows = (re.split(r"\s{2,}", re.sub(r" \([\d.]+\)", "", line)) for line in text.splitlines())
    return {row[0]: row[1:] for row in rows if len(row) > 3}


def readme() -> str:
    """Return the README with a new table."""
    return GAINS.sub(lambda _: gains(), README.read_text(encoding="utf-8"))


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    README.write_text(readme(), encoding="utf-8")
