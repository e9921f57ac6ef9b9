"""The policy of a run travels with it: in its manifest, and in the text of its plan."""

import json
import re
from pathlib import Path

import pytest
from cli.commands import answer, ckio, complaint
from cli.resumable import RESUME, STEPS, killed, left, place, reference, words

from ckio.jobs.directory import sealed, unsealed
from ckio.planners import compiled
from ckio.schedule.policy import Overlap
from ckio.schedule.text import loads

POLICY = Overlap(2, 2)
ASKED = ("--overlap", str(POLICY))


@pytest.fixture(scope="module", autouse=True)
def loaded() -> None:
    """Compiled code, once for all forks."""
    compiled.prepare("ckio.planners.overlap")


def policy(at: Path, name: str = "run/predicted.txt") -> Overlap:
    """What a text says of overlap."""
    return loads((at / name).read_text()).overlap


@pytest.mark.campaign
@pytest.mark.parametrize(
    ("kill", "status"), [("step:30", -9), ("adjoint:17", -9), ("adjoint:17:15", 75)]
)
def test_a_run_goes_on_with_the_policy_of_its_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kill: str, status: int
) -> None:
    at = place(tmp_path / "at", tapes=1)
    killed(monkeypatch, at, kill, *words("--resume", "--planner", "overlapped"), status=status)
    begun = policy(at)
    assert begun
    assert policy(at, "run/schedule.txt") == begun
    found = answer(*RESUME, at=at)
    assert found["overlap"] == str(begun)
    assert policy(at) == policy(at, "run/schedule.txt") == policy(at, "run/measured.txt") == begun
    assert found["gradient_digest"] == reference(tmp_path)["gradient_digest"]
    assert left(at) == []


@pytest.mark.slow
def test_another_policy_counts_for_the_process_that_is_given_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = place(tmp_path / "at")
    killed(monkeypatch, at, "step:30", *words(*ASKED))
    said = killed(monkeypatch, at, "adjoint:9", *RESUME, "--overlap", "none")
    line = f"overlap none as asked for, instead of {POLICY} that the run was begun with\n"
    assert line in said
    assert not policy(at)
    assert "as asked for" not in killed(monkeypatch, at, "adjoint:9", *RESUME, *ASKED)
    assert policy(at) == POLICY
    assert answer(*RESUME, at=at)["overlap"] == str(POLICY)


def test_a_run_of_unknown_length_keeps_its_policy_for_the_way_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = place(tmp_path / "at")
    model = (at / "ocean.py").read_text()
    ends = f"    def finished(self, state, i):\n        return i == {STEPS}\n\n    def work("
    (at / "ocean.py").write_text(model.replace("    def work(", ends))
    killed(monkeypatch, at, "step:30", *words("--resume", *ASKED, steps=None))
    assert answer(*RESUME, at=at)["overlap"] == str(POLICY)
    assert policy(at, "run/schedule.txt") == POLICY


def test_a_manifest_without_a_policy_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = place(tmp_path / "at")
    killed(monkeypatch, at, "step:30", *words())
    manifest = at / "run" / "manifest.json"
    said = json.loads(unsealed(manifest.read_text(), manifest))
    assert not Overlap.parse(said["request"].pop("overlap"))
    manifest.write_text(sealed(json.dumps(said)))
    assert "is damaged: request cannot be" in complaint(*RESUME, at=at)


@pytest.mark.slow
def test_a_plan_in_a_file_has_its_policy_with_it(tmp_path: Path) -> None:
    at = place(tmp_path / "at", tapes=1)
    line = ("plan", "--overlap", "--steps", STEPS, "--platform", "node.toml")
    made = answer(*line, "-o", "plan.txt", at=at)
    assert str(policy(at, "plan.txt")) == made["overlap"]
    found = answer("simulate", "plan.txt", at=at)
    assert (found["overlap"], found["makespan"]) == (made["overlap"], made["makespan"])
    ckio("show", "plan.txt", "--html", "plan.html", at=at)
    assert f"<dd>{made['overlap']}</dd>" in (at / "plan.html").read_text()


def interval(said: str) -> str:
    """How often a run stores its adjoint, in its own words."""
    match = re.search(r"an adjoint checkpoint on far every (\S+ \S+) of work", said)
    assert match, said
    return match[1]


@pytest.mark.slow
def test_another_mtbf_gives_the_rest_of_a_run_its_own_interval(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = place(tmp_path / "at")
    plain = [word for word in words(into="plain") if word not in ("--every", "8s")]
    daly = interval(ckio(*plain, "--mtbf", "30m", at=at).stdout)
    assert interval(killed(monkeypatch, at, "adjoint:3", *words())) == "8 s"
    again = killed(monkeypatch, at, "adjoint:3", *RESUME, "--mtbf", "30m")
    assert interval(again) == daly != "8 s"
    both = killed(monkeypatch, at, "adjoint:3", *RESUME, "--mtbf", "30m", "--every", "9s")
    assert interval(both) == "9 s"
    assert interval(ckio(*RESUME, at=at).stdout) == "8 s"
