"""Memory is what the machine has left, or the job, whichever is less."""

from pathlib import Path

import pytest

from ckio.platform.memory import available

KIB, GIB = 1 << 10, 1 << 30


def system(root: Path, files: dict[str, str]) -> Path:
    """A /proc and a /sys with these files."""
    for name, text in {"proc/meminfo": f"MemAvailable:  {8 * GIB // KIB} kB\n", **files}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def test_this_machine_has_some() -> None:
    found = available()
    assert found is None or found > 0


def test_without_a_limit_it_is_what_the_machine_has(tmp_path: Path) -> None:
    groups = {"proc/self/cgroup": "0::/job\n", "sys/fs/cgroup/job/memory.max": "max\n"}
    assert available(system(tmp_path, groups)) == 8 * GIB


def test_a_system_that_does_not_say_is_not_guessed_at(tmp_path: Path) -> None:
    assert available(tmp_path) is None


@pytest.mark.parametrize("group", ["/job", "/job/step_0/task"])
def test_a_job_has_what_its_limit_leaves_and_its_cache(tmp_path: Path, group: str) -> None:
    at = "sys/fs/cgroup/job"
    limits = {
        "proc/self/cgroup": f"0::{group}\n",
        f"{at}/memory.max": f"{4 * GIB}\n",
        f"{at}/memory.current": f"{3 * GIB}\n",
        f"{at}/memory.stat": f"anon 7\ninactive_file {GIB}\nactive_file {GIB // 2}\n",
    }
    assert available(system(tmp_path, limits)) == 2.5 * GIB


def test_older_systems_limit_jobs_too(tmp_path: Path) -> None:
    at = "sys/fs/cgroup/memory/slurm/job"
    limits = {
        "proc/self/cgroup": "5:cpu:/slurm/job\n4:memory:/slurm/job\n",
        f"{at}/memory.limit_in_bytes": f"{GIB}\n",
        f"{at}/memory.usage_in_bytes": f"{GIB // 4}\n",
    }
    assert available(system(tmp_path, limits)) == 0.75 * GIB
