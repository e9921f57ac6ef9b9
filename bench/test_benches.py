"""Every bench runs, made small, and its tables say what they are taken for."""

import sys
import tempfile
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from unknown_length import listing1

from ckio.backends.files import Files
from ckio.models.burgers import Burgers

Small = Callable[[Any, Path], str]
"""Takes the table of a bench, given its module and a directory."""


def peers_of_jax(bench: Any, at: Path) -> str:
    names = bench.FORWARD, bench.NESTED, bench.COMPILED, bench.CKIO
    rows, arrays = bench.measured(names, 100, 256, 1, at)
    assert all(rows[name].stored > 3 * 8 * 256**2 for name in (bench.COMPILED, bench.CKIO))
    return f"{bench.table(rows, arrays)}\n{bench.verdict(rows)}"


def plans_of_overlap(bench: Any, _at: Path) -> str:
    contest = bench.Contest(grid=24, steps=9, states=(2, 2, 9), turns=1, repeats=1)
    tables = bench.tables(nbytes=1 << 20, steps=2, rounds=1, grid=16, length=6, runs=1)
    return f"{tables}\n{bench.plans(contest)}"


def fidelity(bench: Any, _at: Path) -> str:
    subject = bench.Subject("a small model", 16, 12, (2, 12, 12))
    return f"{bench.tables([subject])}\n{bench.brief_beside_long(subject)}"


def copies(bench: Any, _at: Path) -> str:
    return bench.table([bench.Case("burgers", lambda: Burgers(grid=200, time=1e9), 9)], 2)


def ranks(bench: Any, _at: Path) -> str:
    drawn = (
        bench.Case("drawn", 5, **bench.DRAWN, barrier=barrier, near=False)
        for barrier in ("none", "step")
    )
    return bench.table(40, tuple(drawn), bench.Case("alike", 3, near=False))


def pages(bench: Any, _at: Path) -> str:
    table = bench.table((100, 3000))
    assert all(0 < float(row.split()[-3]) < 1 for row in table.splitlines()[1:]), "megabytes"
    return table


TABLES: dict[str, tuple[Small, tuple[str, ...]]] = {
    "compressed": (
        lambda bench, _: bench.table(grid=32, steps=12, copies=1, rounds=1),
        ("blosc2 lz4 1", "zfp(tolerance=1e-06)"),
    ),
    "copies": (copies, ("burgers", "missed")),
    "dag": (lambda bench, _: bench.table(400, {200: ("milp", "paper")}), ("of 10 s", "of 100")),
    "direct": (lambda bench, _: bench.table(nbytes=2 << 20, rounds=1), ("O_DIRECT",)),
    "fidelity": (
        fidelity,
        ("hrevolve", "multistage", "two-level", "overlapped: off by", "brief: "),
    ),
    "jax_peers": (peers_of_jax, ("of the memory",)),
    "lowering": (lambda bench, _: bench.table((20, 50)), ("vorticity", "permafrost")),
    "overlap": (plans_of_overlap, ("medians of 1 turns", "planned for overlap", "mixed")),
    "petsc_peer": (lambda bench, _: bench.table(bench.Task(8, "beuler", 30, 4), 1), ("ckio",)),
    "ranks": (ranks, ("one by one: the same to the last bit", "of 120 s", "drawn")),
    "report_page": (pages, ("3,000",)),
    "runner": (lambda bench, _: bench.table(400, 2), ("perform",)),
    "sustained": (lambda bench, _: bench.line(4096, 1e-6), ("beyond the page cache",)),
    "torch_peers": (lambda bench, at: bench.table(9, at, 1 << 14), ("the same bits in all",)),
}
NEEDS = {
    "compressed": ("blosc2", "zfpy"),
    "jax_peers": ("jax",),
    "petsc_peer": ("petsc4py",),
    "torch_peers": ("torch",),
}
DIRECT = {"direct", "overlap"}
"""Benches of direct I/O, which not every file system of temporary files has."""


@pytest.mark.parametrize("name", TABLES)
def test_a_table_is_taken(name: str, tmp_path: Path) -> None:
    for package in NEEDS.get(name, ()):
        pytest.importorskip(package)
    if name in DIRECT and not Files().has_direct(Path(tempfile.gettempdir())):
        pytest.skip("the file system of temporary files has no direct I/O")
    take, said = TABLES[name]
    table = take(import_module(name), tmp_path)
    for words in said:
        assert words in table


def test_ranks_of_mpi_agree_exchange_and_write() -> None:
    pytest.importorskip("mpi4py")
    if not Path(sys.executable).with_name("mpiexec").exists():
        pytest.skip("no mpiexec beside this Python")
    found = import_module("mpi").measured(2, 1 << 16)
    assert set(found) == {"agree", "halo", "write"}
    assert all(0 < seconds < 1 for seconds in found.values())


def test_gradients_of_a_flow_in_jax_agree() -> None:
    pytest.importorskip("jax_cfd")
    bench = import_module("jax_flow")
    names = bench.NESTED, "ckio", "ckio, priced directory"
    (row, right), *others = (bench.measured(name, 20) for name in names)
    assert row.first > row.later > 0
    for _, gradient in others:
        assert np.allclose(gradient, right, rtol=1e-3, atol=1e-4 * abs(right).max())


def test_a_linear_program_is_as_good_as_the_cut_and_the_search_no_better() -> None:
    bench = import_module("dag")
    for case in bench.cases(400):
        *_, program, search = bench.beside(case, ("milp", "paper"))
        assert program == "1.0000"
        assert float(search) >= 1


def test_ranks_that_wait_for_bandwidth_are_held_up_and_in_the_background_less() -> None:
    bench = import_module("ranks")
    case = bench.Case("alike", 100, near=False)
    found = bench.measure(case, 40)
    assert found["groups"] == 1
    assert found["makespan"] > 1.5 * found["alone"]
    assert round(found["achieved"], 6) == 1
    cases = (bench.Case("alike", 9, near=False, overlap=it) for it in ("", "write_behind=2"))
    waited, behind = (bench.measure(case, 40)["makespan"] for case in cases)
    assert behind < waited


def test_programs_are_measured_beside_plain_python() -> None:
    bench = import_module("programs")
    points = bench.growth((103, 203), repeats=1)
    (_, first, _), (_, plain, other) = points
    assert plain.stats["tape_peak"] > 1.5 * first.stats["tape_peak"]
    assert other.nbytes < plain.nbytes
    assert len(bench.table_of_growth(points).splitlines()) == 3
    ticks = bench.overhead(listing1, (3.0, 103, 1e-3), repeats=1)
    assert ticks.ticks > 400
    assert "us more" in bench.lines_of_overhead(ticks)
    whole = bench.whole(256, 1e-3, 8, repeats=1)
    assert whole.again > 1
    assert whole.stats["tape_bytes"] < whole.tape_bytes
    assert "times forward" in bench.lines_of_whole(whole)
