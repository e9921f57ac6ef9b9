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

This page collects measurements that help you to decide whether and how to use ckio: the accuracy
of predictions, the speed of storage, the time for planning, and comparisons with other programs.
Each section answers one question with a table, and reads one row of it as an example.

A script of `bench/` measured every number, and every table is an excerpt of the file that the
script wrote. The date and the machine are below each table. Compare times only within one table,
because different tables may come from different machines. A ratio always compares two
measurements of the same run. To measure on your machine, run `python bench/NAME.py`. Then `python
bench/page.py` writes this page again.
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
        "The machine was calibrated, and the schedules of several planners were simulated and then"
        " run. The column `error` is the predicted time divided by the measured time, minus one."
        " The column `at pace` is the same error after correcting for the speed of the processor"
        " at that moment. The column `spread` is the difference between the slowest and the"
        " fastest run, relative to the median.",
        "For example, the schedule of `mixed` without overlap was predicted to take {0} s, and it"
        " took {1} s. The error is {2}, while the runs themselves varied by {3}.",
        r"^mixed +synchronous +(\S+) +(\S+) +(\S+) +(\S+)",
        "fidelity",
        "fidelity",
        "^schedule ",
    ),
    Figure(
        "How fast are checkpoints written and read?",
        "Each row compares a level of ckio with the fastest way to move the same bytes without"
        " ckio, which the column `beside` names: a copy in memory, or a bare system call. Both"
        " were measured in the same round, and `ratio` is the quotient of their times. The last"
        " column is the largest ratio that ckio allows itself. The directory and the archive"
        " compute and verify checksums, unless the row says otherwise.",
        "For example, the directory writes a checkpoint of 64 MiB in {0} µs. The bare call takes"
        " {1} µs, so the ratio is {2}. For a checkpoint of 1 KiB the ratio is {3}, but the"
        " time is only {4} µs.",
        r"^directory, write, 64 MiB +(\S+) +bare call +(\S+) +(\S+)"
        r"[\s\S]*^directory, write, 1 KiB +(?=\S+ +[a-z, ]+\S+ +(\S+))(\S+)",
        "backends",
        "backends",
        "^ .*beside",
    ),
    Figure(
        "How long does planning take?",
        "The table shows the processor time of the planner `hrevolve` for chains of l + 1 steps,"
        " and the peak memory of the process. The last two columns are the seconds to check the"
        " rules of the schedule and to compute its makespan.",
        "For example, a schedule for l = 1,000,000 on `arch_1`, a machine of Herrmann & Pallez"
        " (2020), is planned in {0} s of processor time. It has {1} actions, and checking them"
        " takes {2} s.",
        r"^arch_1, l = 1000000 +(\S+) +\S+ +\S+ +(\S+) +(\S+)",
        "bench_planning",
        "planning",
        "^hrevolve  ",
        "^arch_1|^RAM 50|^RAM 20",
    ),
    Figure(
        "How do planners compare with those of checkpoint_schedules?",
        "Both packages plan the same chain. The column `ratio` is the planning time of"
        " checkpoint_schedules over that of ckio. The last two columns are the number of forward"
        " steps that each schedule takes.",
        "For example, checkpoint_schedules plans H-Revolve for 1001 steps in {0} s, and ckio in"
        " {1} s. The schedules take {2} and {3} forward steps. Chains of this length are planned"
        " with NumPy, because loading compiled code takes a second.",
        r"^HRevolve\(n, 20, 100\), n = 1001 +(\S+) +(\S+) +\S+ x +(\S+) +(\S+)",
        "bench_planning",
        "planning",
        "^checkpoint_schedules",
    ),
    Figure(
        "How long does a gradient take, compared with other programs?",
        "All rows compute the gradient of the same model, and all gradients are equal. All rows"
        " with checkpoints have the same slots. Numbers in parentheses are relative to `ckio,"
        " mixed`. Files are in the page cache; only ckio computes and verifies their checksums."
        " The `seconds` are the sum of planning, the steps of the model, and everything"
        " else (`beside`), for example storage. The column `memory` is the growth of the process"
        " above its size at the start. The column `forward` counts forward steps, and `moved`"
        " counts the bytes that were written and read.",
        "For example, `ckio, mixed` needs {2} s and {3} MB. To store every tape in memory takes"
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
        "The table compares ways to compute the gradient of a long scan: a plain scan, nested"
        " `jax.checkpoint`, equinox, diffrax and ckio. The column `first s` includes compilation,"
        " and `s` does not. The column `above forward` is the peak memory in MB beyond that of the"
        " forward run alone.",
        "For example, ckio outside `jax.jit` takes {2} s and {3} MB beyond the forward run. A"
        " plain scan, which stores every state, takes {0} s and {1} MB.",
        r"^plain scan +\S+ +(\S+) +\S+ +\S+ +(\S+)[\s\S]*^ckio  +\S+ +(\S+) +\S+ +\S+ +(\S+)",
        "jax_peers",
        "jax_peers",
        "^ .*first s",
    ),
    Figure(
        "How long does the first gradient of a flow solver in JAX take?",
        "The loop is 900 steps of Kolmogorov flow by jax-cfd. Each row was measured in three fresh"
        " processes. The column `first s` includes planning and compilation, and `later s` does"
        " not. Each `CPU s` is the processor time of the column before it, which is disturbed less"
        " by other programs. The column `difference` is that of the gradient from nested"
        " `jax.checkpoint`, in float32.",
        "For example, the first gradient takes {4} s of processor time with ckio and {0} s with"
        " nested `jax.checkpoint`, a later one {5} s and {1} s. With 30 checkpoints of equinox,"
        " these are {2} s and {3} s.",
        r"^nested jax.checkpoint +\S+ +(\S+) +\S+ +(\S+)[\s\S]*"
        r"^equinox, 30 checkpoints +\S+ +(\S+) +\S+ +(\S+)[\s\S]*"
        r"^ckio  +\S+ +(\S+) +\S+ +(\S+)",
        "jax_flow",
        "jax_flow",
        "^ .*first s",
    ),
    Figure(
        "How long does a gradient on a GPU take?",
        "The model is a wave in three dimensions (`examples/wave3d`), with a state of 0.5 GB. The"
        " checkpoints of each row may take 8 GB of the memory of the device. `nested` is nested"
        " `jax.checkpoint`, `offloaded` a policy of JAX that copies a state to the host every ten"
        " steps, and `torch` nested `torch.utils.checkpoint` with a compiled step, which was"
        " measured half an hour before on a device of the same kind. The last column is a digest of"
        " the bits of the gradient.",
        "For example, the gradient takes {0} s with ckio, which had predicted {1} s, and {2} s with"
        " nested `jax.checkpoint`.",
        r"^ckio +(\S+) +\S+ to \S+ +(\S+)[\s\S]*^nested +(\S+)",
        "device",
        "device",
        "^checkpoints",
    ),
    Figure(
        "What does it cost in programs of other frameworks?",
        "Programs of `examples/`, some with more steps than there, compute their gradient with"
        " all states in memory (`none`), with the checkpoints of their framework, and with those"
        " of ckio. The column `error` is the relative difference of the gradient from that with"
        " all states, and `Taylor` the order of a Taylor test, which should be 2. Seconds and the"
        " peak memory of the process are medians of three runs. Most of the memory belongs to the"
        " libraries.",
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
    ),
    Figure(
        "How much time does the runner add to each action?",
        "The model does nothing, and each checkpoint has 8 bytes in memory. So the table shows the"
        " processor time of ckio itself, in microseconds per action. The column `runner` is that"
        " time minus the time of the bare calls.",
        "For example, `ckio.run` takes {0} µs per action, of which {1} µs are its own. If a"
        " function watches each event, this grows to {2} µs. A step should therefore take much"
        " longer than some microseconds.",
        r"^run  +(\S+) +(\S+)[\s\S]*^run, watched +\S+ +(\S+)",
        "runner",
        "runner",
        "^ .*runner",
    ),
    Figure(
        "How much does a plan for overlap gain?",
        "The table shows makespans in seconds for 200 steps on ten machines. The columns with the"
        " name of a planner are its schedule with the best overlap policy. The column `plan` is"
        " the plan that `ckio.plan` makes for overlap, and `bound` is a lower bound for every"
        " plan. The column `before` is an earlier planner, for states only. The table was taken"
        " with a longer search than that of today, whose bound is an estimate.",
        "For example, on the machine with 64 GB of RAM and a parallel file system at 1 GB/s, the"
        " schedule of `mixed` takes {0} s with overlap, and the plan for overlap takes {1} s. No"
        " plan can take less than {2} s there.",
        r"^RAM 64 GB, PFS at 1/1 GB/s, tape 8 GB +\S+ +\S+ +\S+ +(\S+) .* (\S+) +(\S+)$",
        "overlap_planning",
        "overlap_planning_machines",
        "^ten machines",
        last="bound",
    ),
    Figure(
        "How long does it take to simulate many ranks?",
        "All ranks perform the same plan of 1000 steps and share the bandwidth of an archive."
        " Identical ranks are simulated as one group. The column `held up` is the makespan"
        " relative to that of one rank alone. The last two columns are the seconds that the"
        " median rank lost on the archive (`slowed`) and waiting for other ranks (`waited`).",
        "For example, {0} ranks of different speed are simulated in {1} s of processor time. Their"
        " makespan is {2} s, which is {3} times that of one rank alone.",
        r"^each as fast as it is +(\S+) +\S+ +\S+ +(\S+) +\S+ +(\S+) +(\S+)",
        "ranks",
        "ranks",
        "^ .*ranks  groups",
    ),
    Figure(
        "How well do codecs compress restart data?",
        "The column `stored/raw` is the compressed size relative to the raw size. Speeds are in"
        " GB/s of raw bytes, first per core and then with one and two threads. The rows below"
        " `noise` compress random numbers, which is the worst case. Only the rows with a"
        " tolerance lose information.",
        "For example, `zstd 1` compresses the restart data of the vorticity model to {0} of their"
        " size. One core then writes {1} GB/s and reads {2} GB/s.",
        r"^  zstd 1  +(\S+) +(\S+) +(\S+)",
        "compressed",
        "codecs",
        "^ .*stored/raw",
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
