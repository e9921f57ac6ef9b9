"""Every bench runs, made small, and its table says what it is taken for."""

import os
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from bench import record, which_schedule
from ckio.planners.dp import hrevolve
from ckio.schedule import makespan
from ckio.sim.engine import simulate

Small = Callable[[Any, Path], str]
"""Takes the table of a bench, given its module and a directory."""


def gradients_of_pyadjoint(bench: Any, _at: Path) -> str:
    from checkpoint_schedules import mixed, multistage

    case = bench.Case(steps=60, cells=32, slots=3)
    with pytest.MonkeyPatch.context() as patched:  # numba would compile for longer than all takes
        for module, name in (multistage, "n_advance"), (mixed, "mixed_steps_tabulation"):
            function = getattr(module, name)
            patched.setattr(module, name, getattr(function, "py_func", function))
        rows = bench.measured(case, 1)
    ours = {name: row for name, row in rows.items() if name.startswith("ckio")}
    assert {(row.error, row.error_again) for row in ours.values()} == {(0.0, 0.0)}
    assert max(row.peak for row in ours.values()) <= 3
    return str(bench.table(case, rows))


def levels(bench: Any, _at: Path) -> str:
    tiny = bench.Case("tiny", 1 << 10, 4, 3)
    with (
        patch.object(bench, "CASES", (tiny,)),
        patch.object(bench, "TARGETS", (bench.Target(tiny, "hdf5", 0, bench.CALL, 1e9),)),
    ):
        return str(bench.tables(2, 2))


def fidelity(bench: Any, _at: Path) -> str:
    subject = bench.Subject("a small model", 16, 12, (2, 12, 12))
    return f"{bench.tables([subject])}\n{bench.brief_beside_long(subject)}"


def figures_of_hrevolve(bench: Any, _at: Path) -> str:
    found = bench.campaign(bench.QUICK)
    for points in found.values():
        best = {(p.plot, p.case, p.length): p.makespan for p in points if p.schedule == "hrevolve"}
        assert all(p.makespan >= best[p.plot, p.case, p.length] for p in points)
    with patch.object(bench, "campaign", return_value=found):
        return str(bench.table(quick=True))


def loops_of_jax(bench: Any, at: Path) -> str:
    names = bench.FORWARD, bench.NESTED, bench.COMPILED, bench.CKIO
    rows, arrays = bench.measured(names, 100, 256, 1, at)
    assert all(rows[name].stored > 3 * 8 * 256**2 for name in (bench.COMPILED, bench.CKIO))
    return str(bench.table(rows, arrays))


def plans_with_overlap(bench: Any, _at: Path) -> str:
    (case,) = bench.drawn(3, 1)
    assert case == bench.drawn(3, 1)[0]
    policy, schedule = bench.policies(case)[1], hrevolve(case.chain, case.platform)
    seconds = simulate(schedule, case.platform, overlap=policy).makespan
    assert min(bench.named(case).values()) <= min(seconds, makespan(schedule, case.platform))
    return f"{bench.machines_table([20], bench.MACHINES[:1])}\n{bench.random_table([3], 1)}"


def planning(bench: Any, _at: Path) -> str:
    found = record.alone(bench.measure, "hrevolve", 1000, bench.PLATFORMS["arch_1"], 1)
    assert found["makespan"] == 8145
    return str(bench.targets([100], {"RAM": "1\n 50 0 0"}))


def programs(bench: Any, _at: Path) -> str:
    points = bench.growth((103, 203), repeats=1)
    (_, first, _), (_, plain, other) = points
    assert plain.stats["tape_peak"] > 1.5 * first.stats["tape_peak"]
    assert other.nbytes < plain.nbytes
    ticks = bench.overhead(bench.listing1, (3.0, 103, 1e-3), repeats=1)
    whole = bench.whole(256, 1e-3, 8, repeats=1)
    assert whole.stats["tape_bytes"] < whole.tape_bytes
    texts = bench.lines_of_overhead(ticks), bench.lines_of_whole(whole)
    return "\n".join([bench.table_of_growth(points), *texts])


def ranks(bench: Any, _at: Path) -> str:
    drawn = (
        bench.Case("drawn", 5, **bench.DRAWN, barrier=barrier, near=False)
        for barrier in ("none", "step")
    )
    return str(bench.table(40, tuple(drawn), bench.Case("alike", 3, near=False)))


def calls_of_a_run(bench: Any, _at: Path) -> str:
    """The bare loop makes the calls that a run makes; states are also dumped to be compared."""
    seen: list[tuple[str, object]] = []

    def noting(name: str, real: Callable[..., object]) -> Callable[..., object]:
        def noted(self: object, what: object, *others: object) -> object:
            seen.append((name, what))
            return real(self, what, *others)

        return noted

    names = {bench.Nothing: ("advance", "record", "reverse", "load")}
    names |= {bench.Ram: ("write", "read", "discard")}
    with pytest.MonkeyPatch.context() as patched:
        for kind, methods in names.items():
            for name in methods:
                patched.setattr(kind, name, noting(name, getattr(kind, name)))
        bench.bare(work := bench.Work.of(200))
        calls, seen[:] = list(seen), []
        bench.CONTENDERS[bench.RUN](work)
    assert calls == seen
    assert bench.timeline_bytes(bench.Work.of(3000)) <= bench.MOST_BYTES
    return str(bench.table(400, 2))


def gradients_of_vorticity(bench: Any, at: Path) -> str:
    task = bench.Task(8, 40, 4, 4, str(at))
    rows = bench.rounds(task, 1, bench.measured)
    assert rows["ckio, hrevolve"]["forward"] == rows["numpy, ckio's schedule"]["forward"] > 40
    figures, found = bench.asked("ckio, hrevolve", task)
    assert bench.distance(found, bench.measured("ckio, hrevolve", task)[1]) == 0
    assert figures["seconds"] >= figures["planning"] + figures["steps"] > 0
    return str(bench.table(task, rows, 1))


TABLES: dict[str, tuple[Small, tuple[str, ...]]] = {
    "backends": (levels, ("hdf5, write, tiny",)),
    "codecs": (
        lambda bench, _: bench.table(grid=32, steps=12, copies=1, rounds=1),
        ("blosc2 lz4 1", "zfp(tolerance=1e-06)"),
    ),
    "fidelity": (
        fidelity,
        ("hrevolve", "multistage", "two-level", "overlapped: off by", "brief: "),
    ),
    "gradient_check": (lambda bench, _: bench.table(10, 10), ("right, float64",)),
    "memory": (lambda bench, _: bench.table(bench.cases(small=True)), ("1 of 1 within",)),
    "overlap_planning": (plans_with_overlap, ("store-all", "gaps: least")),
    "papers.hrevolve": (figures_of_hrevolve, ("agrees: ", "H-Revolve(l, arch_1)")),
    "papers.programs": (programs, ("us more", "times forward")),
    "papers.snapshots": (
        lambda bench, _: bench.table(small=True),
        ("K is in 2 snp (eager); 1 snp, 1 tape (lazy); 1 snp+sbk (cheapest)",),
    ),
    "papers.step_tape": (
        lambda bench, _: bench.table(
            8, bench.Effort(jointly=(1,), levels=(None,), rounds=1, calls=1)
        ),
        ("1 jointly, bytes only    2.00       2  psi, zeta",),
    ),
    "peers.adjoint_tapes": (gradients_of_pyadjoint, ("new control",)),
    "peers.jax_peers": (loops_of_jax, ("ckio inside jax.jit",)),
    "peers.petsc_peer": (
        lambda bench, _: bench.table(bench.Task(8, "beuler", 30, 4), 1),
        ("ckio",),
    ),
    "peers.torch_peers": (
        lambda bench, at: bench.table(9, at, 1 << 14),
        ("has the same bits in all",),
    ),
    "peers.vorticity": (gradients_of_vorticity, ("numpy, every tape kept", "ckio, mixed, overlap")),
    "planning": (planning, ("l = 100",)),
    "ranks": (ranks, ("one by one: the same to the last bit", "of 120 s", "drawn")),
    "resume": (lambda bench, _: bench.table((60,), (60,), 1), ("RAM 10, far w = r = 5: 60",)),
    "runner": (calls_of_a_run, ("perform",)),
    "varying": (lambda bench, _: bench.table(60, 20), ("60 steps, 5 slots, w = r = 0: two_ph",)),
}
NEEDS = {
    "codecs": ("blosc2", "zfpy"),
    "papers.step_tape": ("jax",),
    "peers.adjoint_tapes": ("pyadjoint", "checkpoint_schedules"),
    "peers.jax_peers": ("jax",),
    "peers.petsc_peer": ("petsc4py",),
    "peers.torch_peers": ("torch",),
}


@pytest.mark.parametrize("name", TABLES)
def test_a_table_is_taken(name: str, tmp_path: Path) -> None:
    for package in NEEDS.get(name, ()):
        pytest.importorskip(package)
    take, words = TABLES[name]
    few_passes = patch("ckio.calibrate.overlap._PASSES", 6)  # of concurrent transfers
    with few_passes, patch.dict(os.environ, OPENBLAS_NUM_THREADS="1"):
        table = take(import_module(f"bench.{name}"), tmp_path)
    for each in words:
        assert each in table


def test_the_table_of_the_page_is_a_part_of_the_results() -> None:
    rows = which_schedule.read(which_schedule.results(), "makespans, 1000 steps")
    assert sorted(rows) == which_schedule.compared()
    assert which_schedule.page() == which_schedule.PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", which_schedule.compared())
def test_the_results_say_what_the_planner_does_on_a_hundred_steps(name: str) -> None:
    rows = which_schedule.read(which_schedule.results(), "makespans, 100 steps")
    least = {name, "mixed", "hrevolve", "store-all", "periodic"}
    assert which_schedule.relative(100, sorted(least))[name] == rows[name]


def test_ranks_that_wait_for_bandwidth_take_longer_and_in_the_background_less() -> None:
    bench = import_module("bench.ranks")

    def measured(count: int, overlap: str = "") -> dict[str, Any]:
        case = bench.Case("alike", count, near=False, overlap=overlap)
        return dict(bench.measure(bench.asdict(case), 40))

    found = measured(100)
    assert (found["groups"], round(found["achieved"], 6)) == (1, 1)
    assert found["makespan"] > 1.5 * found["alone"]
    assert measured(9, "write_behind=2")["makespan"] < measured(9)["makespan"]
