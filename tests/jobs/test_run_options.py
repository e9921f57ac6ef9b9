"""What a run does by itself: working memory for another model, and values that are not finite."""

from pathlib import Path

import pytest
from cli.commands import answer, ckio
from jobs.inversion import LINE, MODEL, place

from ckio import Job
from ckio.errors import BadInput, RunFailed
from ckio.jobs.planning import with_working_memory
from ckio.planners import hrevolve
from ckio.platform import Level, Platform
from ckio.platform.chain import Chain
from ckio.schedule.policy import policy_of

MORE = """

class Hot(Heat):
    def step(self, state, i):
        super().step(state, i)
        if i == 30:
            state["x"][3] = np.inf if at == "0" else np.nan
"""


def test_room_for_a_tape_is_made_where_nobody_set_a_limit() -> None:
    costs = {"advance": 1.0, "record": 1.0, "reverse": 1.0, "restart": 8, "adjoint": 8}
    measured = Chain(steps=None, tape=10, **costs)  # type: ignore[arg-type]
    larger = Chain(steps=9, tape=30, **costs)  # type: ignore[arg-type]
    platform = Platform((Level(name="ram", capacity=80),), 10, {"measured": measured})
    assert with_working_memory(platform, larger).working_memory == 30
    assert (
        with_working_memory(Platform((), 20, {"measured": measured}), larger).working_memory == 20
    )
    assert (
        with_working_memory(Platform((), None, {"measured": measured}), larger).working_memory
        is None
    )
    assert hrevolve(larger, with_working_memory(platform, larger)).chain == larger


@pytest.mark.campaign
@pytest.mark.parametrize("overlap", ["none", "all"])
def test_a_run_ends_where_values_are_not_finite(tmp_path: Path, overlap: str) -> None:
    at = place(tmp_path)
    (at / "heat.py").write_text(MODEL + MORE)
    words = [word if word != "heat.py:Heat" else "heat.py:Hot" for word in LINE]
    line = ckio(*words, "--overlap", overlap, at=at, status=1).stderr
    assert "not finite" in line
    assert "--allow-nan continues with such values" in line
    assert line.count("\n") == 1
    found = answer(*words, "--overlap", overlap, "--allow-nan", "--into", "on", at=at)
    assert found["functional"] is None
    again = ckio(*words, "--into", "on", at=at)  # a result that is not finite is read back
    assert "nan" in again.stdout


@pytest.mark.filterwarnings("ignore:.*encountered:RuntimeWarning")
def test_a_python_caller_hears_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at = place(tmp_path)
    (at / "heat.py").write_text(MODEL + MORE)
    monkeypatch.chdir(at)
    options = {"model": "heat.py:Hot", "steps": 60, "platform": "node.toml"}
    with pytest.raises(RunFailed, match="'x' and 'J' are not finite in x_60"):
        Job("run", **options).run()  # type: ignore[arg-type]
    result = Job("on", allow_nan=True, **options).run()  # type: ignore[arg-type]
    assert result.functional != result.functional


@pytest.mark.parametrize("overlap", ["none", "all", "auto", "write_behind=1,read_ahead=1"])
def test_a_job_takes_the_words_of_the_command_line_for_overlap(tmp_path, overlap):
    job = Job(tmp_path / "run", model="vorticity", steps=10, ram="1MiB", overlap=overlap)
    assert job.request.overlap == policy_of(overlap)
    with pytest.raises(BadInput, match="auto, all or none"):
        Job(tmp_path / "run", model="vorticity", steps=10, overlap="some")
