"""The scripts of docs/batch_jobs.md do what the page says, in jobs that end before the run does."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ckio.schedule.text import loads

PAGE = (Path(__file__).parents[1] / "docs/batch_jobs.md").read_text(encoding="utf-8")
JOB, LOOP, COPY, CALIBRATE, ARRAY = re.findall(r"^```sh\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
(PYTHON,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)

SMALLER = {
    "grid=256": "grid=64",
    "5000": "1500",
    "16GiB": "1MiB",
    '"grid": 256': '"grid": 64',
    "capacity=4GiB": "capacity=1MiB",
    "capacity=64GiB": "capacity=8MiB",
}
"""The run on the page, and one of some seconds."""

SRUN = """\
#!/bin/sh
touch started
"$@" &
process=$!
if [ ! -e interrupted ]; then
    while [ -z "$(find . -name schedule.txt -newer started)" ]; do
        kill -0 $process || exit 99
        sleep 0.05
    done
    touch interrupted
    sleep 1
    kill -TERM $process
fi
wait $process
"""
"""An srun that sends SIGTERM to the first process it starts, soon after that has made its plan."""

pytestmark = pytest.mark.slow


def smaller(script: str, **more: str) -> str:
    for old, new in {**SMALLER, **more}.items():
        script = script.replace(old, new)
    return script


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    """A directory to submit from, with a SLURM that interrupts a job and notes what is requeued."""
    tools = tmp_path / "bin"
    tools.mkdir()
    scontrol = f'#!/bin/sh\necho "$@" >> {tmp_path}/requeued\n'
    for name, text in {"srun": SRUN, "scontrol": scontrol}.items():
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    return tmp_path


def job(at: Path, script: str, *, command: tuple[str, ...] = ("sh", "-c")) -> int:
    """Run one job; return its exit status."""
    path = f"{at / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    slurm = {"SLURM_SUBMIT_DIR": str(at), "SLURM_JOB_ID": "17"}
    array = {"SLURM_ARRAY_JOB_ID": "16", "SLURM_ARRAY_TASK_ID": "1"}
    environment = {**os.environ, **slurm, **array, "PATH": path}
    with (at / "log").open("w") as log:
        done = subprocess.run(
            [*command, script], cwd=at, env=environment, stderr=log, check=False, timeout=120
        )
    return done.returncode


def two_jobs(at: Path, script: str, *, between: Callable[[], object] = lambda: None) -> None:
    """Run two jobs: the first is stopped, the second ends the run, from what the first stored."""
    assert job(at, script) == 75
    said = (at / "log").read_text()
    assert "stopped by SIGTERM" in said
    between()
    assert job(at, script) == 0
    (plan,) = at.glob("run*/schedule.txt")
    if "is stored on" in said:  # or the signal came before the first step
        assert any(loads(plan.read_text()).schedule.stored)
    assert (plan.parent / "gradient.h5").exists()


def requeued(at: Path) -> list[str]:
    return (at / "requeued").read_text().splitlines()


def test_the_job_script_is_requeued_until_the_run_has_ended(cluster: Path) -> None:
    two_jobs(cluster, smaller(JOB))
    assert requeued(cluster) == ["requeue 17"]
    result = json.loads((cluster / "run1/result.json").read_text())
    assert job(cluster, smaller(JOB)) == 0  # once more: the stored result
    assert json.loads((cluster / "run1/result.json").read_text()) == result


def test_the_loop_repeats_while_the_status_is_75(cluster: Path) -> None:
    assert job(cluster, smaller(LOOP, **{"until ckio": "until srun ckio"})) == 0
    assert (cluster / "run1/schedule-1.txt").exists()
    assert (cluster / "run1/result.json").exists()


def test_a_disk_that_is_copied_is_found_by_the_next_job(cluster: Path) -> None:
    local = cluster / "local"
    script = f"{smaller(COPY, **{'/local/me': str(local)})}exit $status\n"
    two_jobs(cluster, script, between=lambda: shutil.rmtree(local))


def test_a_task_of_an_array_is_requeued_alone(cluster: Path) -> None:
    assert job(cluster, smaller(CALIBRATE)) == 0
    two_jobs(cluster, smaller(ARRAY))
    assert requeued(cluster) == ["requeue 16_1"]


def test_the_script_in_python_ends_with_75_if_it_was_stopped(cluster: Path) -> None:
    (cluster / "job.py").write_text(smaller(PYTHON))
    two_jobs(cluster, f"srun {sys.executable} job.py")
