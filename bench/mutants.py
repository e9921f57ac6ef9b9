"""Which small mistakes in the core of ckio does the test suite not find?

    python -m bench.mutants trace [PATH ...]    once: which tests run which lines, under coverage
    python -m bench.mutants run [--of PACKAGE ...] [--count 200] [--seed 1] [--into FOLDER]
    python -m bench.mutants record FOLDER       bench/results/mutants.txt

A mutant is ckio with one operator, number or branch changed, as cosmic-ray changes it, at a place
drawn at random from the functions of the core. It is found if a test fails, or does not end. First
those tests of the quick tier run that pass through the changed line, the shortest first; then, of
mutants that they do not find, those of the slow tier, if `trace --tier slow` has been run. With
PATHs, only tests in them are traced and run. `run` adds a line of JSON for each mutant to
a file in the folder, and continues where it was stopped; several may run at once with other seeds.
Needs `coverage` and `cosmic-ray`, which are no dependencies of ckio.
"""

import argparse
import ast
import json
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as Xml
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

from bench import ROOT, record

CORE = (
    *("planners", "schedule", "analysis", "programs", "runner", "backends", "jobs"),
    *("sim", "calibrate", "report", "cli", "adapters"),
)
FOLDER = ROOT / ".mutants"
TIERS = {"quick": "not slow", "slow": "slow"}
LONGEST = 120.0
"""Traced seconds of the tests that are run against a mutant, the shortest first."""

PATIENCE = 120, 5
"""A mutant does not end if its tests take so many seconds, and so many times as long as usual."""

SKIPPED = ("core/VariableReplacer", "core/VariableInserter", "core/RemoveDecorator")
"""Operators of cosmic-ray that need parameters, or change no behaviour."""

CONFIG = """\
[run]
branch = true
source_pkgs = ckio
parallel = true
patch = subprocess
dynamic_context = test_function
data_file = {data}
"""


class Mutant(NamedTuple):
    """The change that the operator of cosmic-ray makes at its n-th place in a file."""

    path: str
    line: int
    operator: str
    occurrence: int


def trace(tier: str, paths: Sequence[str]) -> None:
    """Run the tests of a tier under coverage; keep their seconds, and which lines each one ran."""
    FOLDER.mkdir(exist_ok=True)
    data, config = FOLDER / f"{tier}.coverage", FOLDER / f"{tier}.rc"
    config.write_text(CONFIG.format(data=data))
    words = ["-m", "coverage", "run", f"--rcfile={config}", "-m", "pytest", "-q", "-n", "2"]
    report = f"--junit-xml={FOLDER / tier}.xml"
    own = os.environ | {"COVERAGE_RCFILE": str(config)}
    command = [sys.executable, *words, report, "-m", TIERS[tier], *paths]
    subprocess.run(command, cwd=ROOT, env=own, check=False)  # a test that fails runs lines, too
    combine = [sys.executable, "-m", "coverage", "combine", "-q", f"--rcfile={config}"]
    subprocess.run(combine, cwd=ROOT, check=True)


def seconds_of(tier: str) -> Counter[str]:
    """Return how long each test function took, all its cases together, by its dotted name."""
    taken = Counter[str]()
    for case in Xml.parse(FOLDER / f"{tier}.xml").iter("testcase"):
        function = case.get("name", "").partition("[")[0]
        taken[f"{case.get('classname')}.{function}"] += float(case.get("time", 0))
    return taken


def tests_by_line(tier: str) -> dict[tuple[str, int], set[str]]:
    """Return the dotted names of the tests that run each line."""
    query = (
        "select distinct file.path, context.context, arc.tono from arc"
        " join file on file.id = file_id join context on context.id = context_id"
        " where arc.tono > 0 and context.context != ''"
    )
    tests = defaultdict[tuple[str, int], set[str]](set)
    with sqlite3.connect(FOLDER / f"{tier}.coverage") as data:
        for path, context, line in data.execute(query):
            tests["ckio/" + path.rpartition("/ckio/")[2], line].add(context)
    return dict(tests)


def lines_of_functions(path: Path) -> set[int]:
    """Return the lines of a file that are statements of functions, and no docstrings."""
    lines = set[int]()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef):
            for statement in node.body:
                is_text = isinstance(statement, ast.Expr) and isinstance(
                    statement.value, ast.Constant
                )
                if not is_text:
                    lines |= set(range(statement.lineno, (statement.end_lineno or 0) + 1))
    return lines


def mutants_of(path: str) -> Iterator[Mutant]:
    """Return all mutants of a file of which only functions change."""
    from cosmic_ray.ast import ast_nodes, get_ast
    from cosmic_ray.plugins import get_operator, operator_names

    lines = lines_of_functions(ROOT / path)
    nodes = list(ast_nodes(get_ast((ROOT / path).read_text())))
    for name in operator_names():
        if name not in SKIPPED:
            operator = get_operator(name)()
            places = [place for node in nodes for place in operator.mutation_positions(node)]
            for occurrence, (start, _) in enumerate(places):
                if start[0] in lines:
                    yield Mutant(path, start[0], name, occurrence)


def drawn(packages: Sequence[str], count: int, seed: int) -> list[Mutant]:
    """Draw places at random, each as often as any other, and one mutant of each."""
    paths = [
        str(it.relative_to(ROOT))
        for name in packages
        for it in (ROOT / "ckio" / name).rglob("*.py")
    ]
    places = defaultdict[tuple[str, int], list[Mutant]](list)
    for path in sorted(paths):
        for mutant in mutants_of(path):
            places[mutant.path, mutant.line].append(mutant)
    chance = random.Random(seed)
    chosen = chance.sample(sorted(places), count)
    return [chance.choice(places[place]) for place in chosen]


def mutated(mutant: Mutant) -> str:
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.plugins import get_operator

    operator = get_operator(mutant.operator)()
    text = mutate_code((ROOT / mutant.path).read_text(), operator, mutant.occurrence)
    assert text is not None, mutant
    return str(text)


def tests_through(mutant: Mutant, tests: dict[tuple[str, int], set[str]]) -> set[str]:
    """Return the tests that run the line; of compiled code, which is not traced, its file's."""
    through = tests.get((mutant.path, mutant.line), set())
    if not through:
        through = set().union(*(tests[place] for place in tests if place[0] == mutant.path))
    return through


def chosen_tests(mutant: Mutant, tests: set[str], taken: Counter[str]) -> list[str]:
    """Return the node ids of tests, the shortest first, of at most LONGEST seconds in all.

    Of a file that no test runs, they are those of its package.
    """
    known = sorted((it for it in tests if it in taken), key=lambda it: taken[it])
    within = accumulate(taken[it] for it in known)
    known = [it for it, seconds in zip(known, within, strict=True) if seconds <= LONGEST]
    nodes = []
    for name in known:
        module, _, function = name.rpartition(".")
        nodes.append(f"{module.replace('.', '/')}.py::{function}")
    package = mutant.path.split("/")[1]
    return nodes or [it for it in (f"tests/{package}", "tests/cli") if (ROOT / it).exists()]


def finds(copy: Path, tier: str, nodes: list[str], usual: float) -> str:
    """Return how tests that usually take some seconds end: "survives", "found", or "no end"."""
    words = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:xdist", "-p", "no:cacheprovider"]
    own = os.environ | {"PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        ended = subprocess.run(
            [*words, "--no-header", "-m", TIERS[tier], *nodes],
            cwd=copy,
            env=own,
            timeout=PATIENCE[0] + PATIENCE[1] * usual,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return "no end"
    return "survives" if ended.returncode in (0, 5) else "found"


def run(packages: Sequence[str], count: int, seed: int, into: Path) -> None:
    """Try mutants of packages that this seed draws, and add a line for each to the seed's file."""
    into.mkdir(exist_ok=True)
    name = "all" if len(packages) == len(CORE) else "-".join(packages)
    kept = into / f"{name}-{seed}.jsonl"
    done = {tuple(json.loads(line)["mutant"]) for line in kept.open()} if kept.exists() else set()
    taken = {tier: seconds_of(tier) for tier in TIERS if (FOLDER / f"{tier}.xml").exists()}
    tests = {tier: tests_by_line(tier) for tier in taken}
    with tempfile.TemporaryDirectory() as place:
        copy = Path(place) / "ckio"
        files = subprocess.check_output(["git", "ls-files"], cwd=ROOT, text=True).splitlines()
        for name in files:
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, copy / name)
        for mutant in drawn(packages, count, seed):
            if tuple(mutant) in done:
                continue
            begun, result = time.monotonic(), dict[str, Any](mutant=mutant)
            original = (copy / mutant.path).read_text()
            (copy / mutant.path).write_text(mutated(mutant))
            for tier, seconds in taken.items():
                through = tests_through(mutant, tests[tier])
                nodes = chosen_tests(mutant, through, seconds)
                usual = min(LONGEST, sum(seconds[it] for it in through))
                result[tier] = finds(copy, tier, nodes, usual)
                if result[tier] != "survives":
                    break
            (copy / mutant.path).write_text(original)
            result["seconds"] = round(time.monotonic() - begun, 1)
            with kept.open("a") as file:
                file.write(json.dumps(result) + "\n")
            print(*mutant, result, flush=True)


def table(into: Path) -> str:
    """Return the shares by package, and the mutants that no tier finds."""
    results = [json.loads(line) for file in sorted(into.glob("*.jsonl")) for line in file.open()]
    rows, survivors = [], []
    for package in (*CORE, "all"):
        own = [it for it in results if package in (it["mutant"][0].split("/")[1], "all")]
        quick = sum(it["quick"] != "survives" for it in own)
        slow = sum(it.get("slow", "survives") != "survives" for it in own)
        share = f"{(quick + slow) / max(1, len(own)):.0%}"
        rows.append([package, str(len(own)), str(quick), str(slow), share])
    for it in results:
        if it["quick"] == it.get("slow", "survives") == "survives":
            path, line, operator, _ = it["mutant"]
            code = (ROOT / path).read_text().splitlines()[line - 1].strip()
            survivors.append([f"{path}:{line}", operator.removeprefix("core/"), code[:60]])
    header = ["package", "mutants", "found by the quick tier", "then by the slow tier", "found"]
    found = record.columns(header, rows)
    return f"{found}\n\nno tier finds\n{record.columns(['line', 'operator', 'code'], survivors)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    traces = commands.add_parser("trace")
    traces.add_argument("paths", nargs="*")
    traces.add_argument("--tier", choices=TIERS, default="quick")
    runs = commands.add_parser("run")
    runs.add_argument("--of", nargs="+", choices=CORE, default=list(CORE))
    runs.add_argument("--count", type=int, default=200)
    runs.add_argument("--seed", type=int, default=1)
    runs.add_argument("--into", type=Path, default=FOLDER / "results")
    commands.add_parser("record").add_argument("folder", type=Path)
    given = parser.parse_args()
    match given.command:
        case "trace":
            trace(given.tier, given.paths)
        case "run":
            run(given.of, given.count, given.seed, given.into)
        case _:
            record.save("mutants", table(given.folder))


if __name__ == "__main__":
    main()
