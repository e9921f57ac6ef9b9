"""Write docs/benchmarks.md, and the README's table, from the files in bench/results.

python bench/page.py        writes both again, after a bench has stored new results
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

Each section answers one question with a table, and reads one row of it as an example. Every table
is an excerpt of a file that a script of `bench/` wrote; the date and the machine are below it.
Compare times only within one table. To measure on your machine, run `python bench/NAME.py`, and
then `python bench/page.py`, which writes this page again. [All results](../bench/results) are more.
"""


@dataclass(frozen=True)
class Figure:
    """A part of a file of results: its lines from the first that matches `begin` to an empty one.

    Attributes
    ----------
    question, answer : str
        The heading, and the text above the table, which explains its columns.
    reading : str
        The text below the table, which reads a row of it: a format of the groups of `sample`.
    sample : str
        A regular expression that finds the numbers for `reading` in the table.
    script, file : str
        The bench, and the file that it wrote, both without ending.
    begin : str
        A regular expression; by default the first line below the one on the machine.
    rows : str
        A regular expression that selects the lines after the first one.
    last : str
        The title of the last column that is shown; by default all columns are.
    """

    question: str
    answer: str
    reading: str
    sample: str
    script: str
    file: str
    begin: str = ""
    rows: str = ""
    last: str = ""


FIGURES: Sequence[Figure] = (
    Figure(
        "How accurate is a prediction?",
        "Schedules were simulated after a calibration, and then run. `error` is the predicted time"
        " over the measured one, minus one, and `at pace` the same after correcting for the speed"
        " of the processor at that moment. `spread` is that of the runs, relative to the median.",
        "For example, the schedule of `mixed` without overlap was predicted to take {0} s, and it"
        " took {1} s. The error is {2}, while the runs themselves varied by {3}.",
        r"^mixed +synchronous +(\S+) +(\S+) +(\S+) +(\S+)",
        "fidelity",
        "fidelity",
        "^schedule ",
        "^hrevolve|^mixed",
        "at pace",
    ),
    Figure(
        "How fast are checkpoints written and read?",
        "Each row compares a level with the fastest way to move the same bytes without ckio, in the"
        " column `beside`. The last column is the largest ratio that ckio allows itself. Directory"
        " and archive compute and verify checksums.",
        "For example, the directory writes a checkpoint of 64 MiB in {0} µs. The bare call takes"
        " {1} µs, so the ratio is {2}. For a checkpoint of 1 KiB the ratio is {3}, but the"
        " time is only {4} µs.",
        r"^directory, write, 64 MiB +(\S+) +bare call +(\S+) +(\S+)"
        r"[\s\S]*^directory, write, 1 KiB +(?=\S+ +[a-z, ]+\S+ +(\S+))(\S+)",
        "backends",
        "backends",
        "^ .*beside",
        "(64 MiB|1 KiB)|^hdf5",
    ),
    Figure(
        "How do planners compare with those of checkpoint_schedules?",
        "Both packages plan the same chain. `ratio` is the quotient of their planning times. The"
        " last columns are the forward steps of each schedule.",
        "For example, checkpoint_schedules plans H-Revolve for 1001 steps in {0} s, and ckio in"
        " {1} s. The schedules take {2} and {3} forward steps.",
        r"^HRevolve\(n, 20, 100\), n = 1001 +(\S+) +(\S+) +\S+ x +(\S+) +(\S+)",
        "bench_planning",
        "planning",
        "^checkpoint_schedules",
        "n = 1001",
    ),
    Figure(
        "How long does a gradient take, compared with other programs?",
        "All rows compute the gradient of the same model, and all gradients are equal. All rows"
        " with checkpoints have the same slots. Numbers in parentheses are relative to `ckio,"
        " mixed`. Files are in the page cache; only ckio verifies their checksums. `seconds` are"
        " the sum of planning, the steps of the model, and everything else (`beside`). `memory` is"
        " the growth of the process. `forward` counts forward steps, and `moved` the bytes written"
        " and read.",
        "For example, `ckio, mixed` needs {2} s and {3} MB. Storing every tape in memory takes"
        " {0} s and {1} MB. pyrevolve takes {4} s, of which {5} s are planning.",
        r"^numpy, every tape kept +(\S+) \(\S+\) +\S+ +\S+ +\S+ +\S+ +(\S+) [\s\S]*"
        r"^ckio, mixed +(\S+) \(\S+\) +\S+ +\S+ +\S+ +\S+ +(\S+) [\s\S]*"
        r"^pyrevolve +(\S+) \(\S+\) +(\S+)",
        "peers",
        "peers",
        "^20 slots in memory, 20 in a directory",
        last="error",
    ),
    Figure(
        "How long does a gradient in JAX take?",
        "The gradient of a scan of 10,000 steps with 256 × 256 cells. `first s` includes"
        " compilation, and `s` does not. `above forward` is the peak memory in MB beyond that of"
        " the forward run alone.",
        "For example, ckio outside `jax.jit` takes {2} s and {3} MB beyond the forward run. A"
        " plain scan, which stores every state, takes {0} s and {1} MB.",
        r"^plain scan +\S+ +(\S+) +\S+ +\S+ +(\S+)[\s\S]*^ckio  +\S+ +(\S+) +\S+ +\S+ +(\S+)",
        "jax_peers",
        "jax_peers",
        "^ .*first s",
    ),
    Figure(
        "How long does the first gradient of a flow solver in JAX take?",
        "The loop is 900 steps of Kolmogorov flow by jax-cfd. `first s` includes planning and"
        " compilation, and `later s` does not. Each `CPU s` is the processor time of the column"
        " before it. `difference` is that of the gradient from nested `jax.checkpoint`, in"
        " float32.",
        "For example, the first gradient takes {4} s of processor time with ckio and {0} s with"
        " nested `jax.checkpoint`, a later one {5} s and {1} s. With 30 checkpoints of equinox,"
        " these are {2} s and {3} s.",
        r"^nested jax.checkpoint +\S+ +(\S+) +\S+ +(\S+)[\s\S]*"
        r"^equinox, 30 checkpoints +\S+ +(\S+) +\S+ +(\S+)[\s\S]*"
        r"^ckio  +\S+ +(\S+) +\S+ +(\S+)",
        "jax_flow",
        "jax_flow",
        "^ .*first s",
        "^plain|^nested|^equinox|^ckio  ",
    ),
    Figure(
        "How long does a gradient on a GPU take?",
        "The model is a wave in three dimensions (`examples/wave3d`), with a state of 0.5 GB."
        " Checkpoints may take 8 GB of the memory of the device. `nested` is nested"
        " `jax.checkpoint`, `offloaded` a policy of JAX that copies a state to the host every ten"
        " steps, and `torch` nested `torch.utils.checkpoint` with a compiled step, measured half an"
        " hour before on a device of the same kind.",
        "For example, the gradient takes {0} s with ckio, which had predicted {1} s, and {2} s with"
        " nested `jax.checkpoint`.",
        r"^ckio +(\S+) +\S+ to \S+ +(\S+)[\s\S]*^nested +(\S+)",
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
        "For example, the gradient of 200 steps of Burgers' equation in dolfinx has an error of"
        " {0} with pyadjoint's Revolve. With ckio it has an error of {1}, and takes {2} s. For a"
        " wave in Firedrake, Revolve takes {4} s, with an error of {3}, and ckio takes {6} s, with"
        " an error of {5}. A shot in Devito takes {8} s with ckio, and {7} s with the schedule of"
        " pyrevolve for several levels (`storages`), most of which is the time to plan it.",
        r"^dolfinx: Burgers by Picard, revolve +(\S+)[\s\S]*"
        r"^dolfinx: Burgers by Picard, ckio +(\S+) +\S+ +(\S+)[\s\S]*"
        r"^Firedrake: shallow water, revolve +(\S+) +\S+ +(\S+)[\s\S]*"
        r"^Firedrake: shallow water, ckio +(\S+) +\S+ +(\S+)[\s\S]*"
        r"^Devito: one shot, storages +\S+ +\S+ +(\S+)[\s\S]*"
        r"^Devito: one shot, ckio +\S+ +\S+ +(\S+)",
        "applications",
        "applications",
        "^program, checkpoints of",
        "Picard|shallow|PETSc|Devito",
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
    numbers = re.search(figure.sample, table, re.MULTILINE)
    if numbers is None:
        raise ValueError(f"bench/results/{figure.file}.txt: no row matches {figure.sample!r}")
    path = f"../bench/results/{figure.file}.txt"
    return (
        f"## {figure.question}\n\n{figure.answer}\n\n```text\n{table}\n```\n\n"
        f"{figure.reading.format(*numbers.groups())}\n\n"
        f"Measured {when} on {machine} by `python bench/{figure.script}.py`:"
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
