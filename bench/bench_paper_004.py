"""The campaign of paper_004.py, quick: that it runs, and that its files are stable."""

from pathlib import Path

import paper_004
import paper_004_claims
import paper_004_times
import pytest
from paper_004_figures import FIGURES, Point, points


@pytest.fixture(scope="module")
def campaign() -> dict[int, list[Point]]:
    return paper_004.campaign(paper_004.QUICK)


def test_nothing_beats_hrevolve(campaign: dict[int, list[Point]]) -> None:
    for found in campaign.values():
        assert found
        best = {(p.plot, p.case, p.length): p.makespan for p in found if p.schedule == "hrevolve"}
        assert all(p.makespan >= best[p.plot, p.case, p.length] for p in found)


@pytest.mark.parametrize("number", FIGURES)
def test_every_claim_of_the_paper_is_weighed(campaign: dict[int, list[Point]], number: int) -> None:
    claims = paper_004_claims.of(number, campaign[number])
    assert len(claims) == len(paper_004_claims.CLAIMS[number])
    assert all("agrees" in str(claim) or "differs" in str(claim) for claim in claims)


def test_the_pictures_and_numbers_are_the_same_each_time(
    campaign: dict[int, list[Point]], tmp_path: Path
) -> None:
    pytest.importorskip("matplotlib")
    for again in ("once", "twice"):
        (tmp_path / again).mkdir()
        paper_004.save(4, campaign[4], tmp_path / again)
    names = {path.name for path in (tmp_path / "once").iterdir()}
    assert names == {"paper_004_figure_4.csv", "paper_004_figure_4.svg"}
    for name in names:
        assert (tmp_path / "once" / name).read_bytes() == (tmp_path / "twice" / name).read_bytes()


def test_the_times_of_table_7(benchmark) -> None:
    assert "H-Revolve(l, arch_1)" in benchmark(paper_004_times.table, (20,))


def test_points_of_a_figure(benchmark) -> None:
    (case, *_) = FIGURES[4]()
    assert benchmark(lambda: list(points([case], [50])))
