"""Runs that overlap: the policy of their plan travels with them, into files and into resumption."""

import json
import re
from pathlib import Path

import pytest
from cli.commands import answer, ckio, complaint
from cli.resumable import RESUME, STEPS, killed, left, place, words

from ckio.schedule.policy import Overlap
from ckio.schedule.text import loads

POLICY = Overlap(2, 2)
ASKED = ("--overlap", str(POLICY))
PLANNED = ("--planner", "overlapped")
MODEL = ("--model", "ocean:growth", "--steps", STEPS, "--platform", "node.toml")
BY_DEFAULT = ("run", "ocean:growth", *MODEL[2:], "--into", "run")


def running(tmp_path: Path, *, measured: bool = True) -> Path:
    """A place whose memory is short, and whose far level was measured beside a computation."""
    at = place(tmp_path / "at", tapes=1)
    text = (at / "node.toml").read_text()
    if measured:
        beside = "profile = {write_beside = {latency = 0.01}, read_beside = {latency = 0.01}}\n"
        text = text.replace("[models", f"{beside}[models")
    (at / "node.toml").write_text(text)
    return at


def policy(at: Path, name: str = "predicted") -> Overlap:
    """What a text of a run says of overlap."""
    return loads((at / "run" / f"{name}.txt").read_text()).schedule.overlap


@pytest.mark.campaign
@pytest.mark.parametrize("far", ["directory", "hdf5", "zstd"])
def test_a_run_with_overlap_computes_the_same(tmp_path: Path, far: str) -> None:
    at = place(tmp_path / "at", far)
    plain = answer(*words(into="plain"), at=at)
    found = answer(*words(*ASKED, "--log", "log.jsonl"), at=at)
    for name in ("gradient_digest", "forward_steps"):
        assert found[name] == plain[name]
    for name in ("name", "written"):
        assert [level[name] for level in found["levels"]] == [
            level[name] for level in plain["levels"]
        ]
    assert policy(at, "measured") == POLICY
    told = ckio("compare", "run", at=at).stdout
    assert "transfers in the background" in told
    first, *lines = map(json.loads, (at / "log.jsonl").read_text().splitlines())
    assert first["planner"] == "hrevolve"
    assert len(lines) == len(loads((at / "run" / "schedule.txt").read_text()).schedule.actions)


@pytest.mark.campaign
@pytest.mark.parametrize("kill", ["adjoint:17", "step:30", "dump:12:9:0.0002", "adjoint:17:15"])
@pytest.mark.parametrize("more", [PLANNED, ASKED])
def test_a_run_goes_on_with_the_policy_of_its_plan(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    digest: str,
    kill: str,
    more: tuple[str, ...],
) -> None:
    at = place(tmp_path / "at", tapes=1)
    status = 75 if kill.endswith(":15") else -9
    killed(monkeypatch, at, kill, *words("--resume", *more), status=status)
    begun = policy(at)
    assert begun == policy(at, "schedule")
    assert begun == POLICY if more == ASKED else begun
    found = answer(*RESUME, at=at)
    assert found["overlap"] == str(begun)
    assert {policy(at, name) for name in ("predicted", "schedule", "measured")} == {begun}
    assert found["gradient_digest"] == digest
    assert left(at) == []


@pytest.mark.slow
def test_another_policy_counts_for_the_process_that_is_given_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = place(tmp_path / "at")
    killed(monkeypatch, at, "step:30", *words(*ASKED))
    said = killed(monkeypatch, at, "adjoint:9", *RESUME, "--overlap", "none")
    assert f"overlap none as asked for, instead of {POLICY} that the run was begun with" in said
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
    assert policy(at, "schedule") == POLICY


# The policy of a plan, and one that is asked for


@pytest.mark.campaign
@pytest.mark.parametrize("overlap", [Overlap(), Overlap(1, 1)])
def test_a_policy_that_is_asked_for_replaces_that_of_the_plan(
    tmp_path: Path, overlap: Overlap
) -> None:
    at = place(tmp_path / "at", tapes=1)
    word = str(overlap) if overlap else "none"
    said = ckio(*words(*PLANNED, "--overlap", word), at=at).stdout
    assert re.findall("overlap (.*) as asked for, instead of .* of the plan\n", said) == [word]
    assert policy(at) == policy(at, "measured") == overlap


def test_a_policy_in_place_of_none_needs_no_word(tmp_path: Path) -> None:
    at = place(tmp_path / "at")
    said = ckio(*words("--overlap", "all"), at=at).stdout
    assert "as asked for" not in said
    assert "overlap        write_behind=all,read_ahead=all" in said


def test_what_is_no_policy_or_cannot_be_decided_is_refused(tmp_path: Path) -> None:
    at = running(tmp_path)
    said = complaint(*words("--overlap", "both"), at=at)
    assert re.search("'both' is not write_behind=N.*auto, all or none", said)
    line = words("--overlap", "auto", steps=None)
    assert "--overlap auto is not possible without --steps" in complaint(*line, at=at)
    line = words("--by-variable", "--overlap", "auto")
    assert "--overlap auto is not possible with --by-variable" in complaint(*line, at=at)


# By default


@pytest.mark.slow
def test_a_run_on_a_measured_machine_overlaps(tmp_path: Path, digest: str) -> None:
    at = running(tmp_path)
    found = answer(*BY_DEFAULT, "--every", "1h", at=at)  # no room is set aside for adjoints
    assert (found["planner"], found["verified"]) == ("auto", None)
    assert Overlap.parse(found["overlap"])
    assert found["gradient_digest"] == digest
    planned = answer("plan", *MODEL, at=at)
    for name in ("overlap", "synchronous", "bound", "gap", "note"):
        assert found[name] == planned[name]
    assert found["predicted"] == pytest.approx(planned["makespan"])
    plain = answer(*BY_DEFAULT[:-1], "again", "--overlap", "none", at=at)
    assert (plain["planner"], plain["overlap"], "bound" in plain) == ("auto", None, False)
    said = ckio(*BY_DEFAULT[:-1], "said", "--every", "1h", at=at).stdout
    assert said.index(planned["note"]) < said.index("predicted and measured")


def test_a_run_on_another_machine_says_that_it_was_not_considered(tmp_path: Path) -> None:
    at = running(tmp_path, measured=False)
    said = ckio(*BY_DEFAULT, at=at).stdout
    assert said.count("overlap was not considered: level far was not measured") == 1
    assert (at / "run" / "result.json").read_text().count('"overlap": null') == 1
    assert "not considered" not in ckio(*BY_DEFAULT[:-1], "b", "--planner", "mixed", at=at).stdout


BARE = """
    def layout(self, key):
        if key.kind.name == "TAPE":
            from ckio.errors import UnsupportedKind
            raise UnsupportedKind("no tapes")
        return super().layout(key)

    def work("""


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
