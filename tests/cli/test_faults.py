"""Models, places and files that go wrong: one line says what, and nothing half-done stays."""

import fcntl
import json
import math
import os
import re
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from cli.commands import CKIO, answer, ckio, complaint
from cli.resumable import MODEL

from ckio.adapters.registry import names
from ckio.backends.directory import Directory
from ckio.jobs.models import identity

FAULTY = """

class Faulty(Growth):
    fault, at = "", 45

    def step(self, state, i):
        self.go_wrong(i)
        super().step(state, i)

    def finished(self, state, i):
        return self.fault == "short" and i == self.at

    def go_wrong(self, i):
        if self.fault == "prints":
            print("step", i)
            os.write(1, b"as Fortran does\\n")
        elif i != self.at:
            return
        elif self.fault == "raises":
            1 / 0
        elif self.fault == "exits":
            raise SystemExit(0)


def faulty(fault="", at=45):
    x = np.linspace(0.1, 0.4, 512)
    noise = np.random.default_rng(0).random(512)  # what no codec makes small
    model = Faulty({"x": x, "noise": noise, "J": 0.0}, control={"x": x, "rate": 0.3}, tape=["x"])
    model.fault, model.at = fault, at
    return model
"""
COSTS = """
advance = 1e-5
record = 1e-5
reverse = 2e-5
restart = 8200
tape = 4096
adjoint = 12312
"""
FAULTS = ("raises", "exits", "short", "prints")

NODE = """\
working_memory = 4096
[[level]]
name = "ram"
capacity = "20 KiB"
[[level]]
name = "nvme"
capacity = 102400
backend = "directory"
options = {path = "ck"}
"""
NODE_AND_MODEL = ("--platform", "node.toml", "--model", "ocean:faulty")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a model of somebody's own and the machine for it."""
    at = tmp_path_factory.mktemp("own")
    (at / "ocean.py").write_text(MODEL + FAULTY)
    options = ("", *(f" fault={fault}" for fault in FAULTS))
    costs = (f'[models."ocean:faulty{option}"]{COSTS}' for option in options)
    (at / "node.toml").write_text(NODE + "".join(costs))
    return at


def run(model: str, *options: object, into: str = "run", steps: int = 50) -> tuple[object, ...]:
    return ("run", model, *options, "--steps", steps, "--platform", "node.toml", "--into", into)


def faulty(fault: str, *options: object, into: str = "run", on: str = "nvme") -> tuple[object, ...]:
    planner = ("--planner", f"revolve:on={on}")
    return run("ocean:faulty", "--set", f"fault={fault}", *options, *planner, into=into)


# Somebody's own model


def test_a_model_that_fails_leaves_sound_checkpoints_and_says_where(place: Path) -> None:
    for fault, said in (
        ("raises", "Advance.*ZeroDivisionError: division by zero"),
        ("exits", "SystemExit: 0"),
        ("short", "Advance.*finished at step 45"),
    ):
        line = ckio(*faulty(fault, into=fault), at=place, status=1).stderr
        assert line.count("\n") == 1
        assert re.search(said, line), line
        run_id = json.loads((place / fault / "manifest.json").read_text())["run"]
        kept = _verified(place / "ck" / run_id)
        assert f"{kept} checkpoints are left in ck/{run_id}" in line
        assert answer(*run("ocean:faulty", into=f"after-{fault}"), at=place)["steps"] == 50


def _verified(place: Path) -> int:
    """How many checkpoints a level holds; all of them are read and verified."""
    level = Directory(place)
    keys = level.keys()
    for key in keys:
        sizes = [math.prod(f.shape) * np.dtype(f.dtype).itemsize for f in level.layout(key)]
        level.read(key, [memoryview(bytearray(nbytes)) for nbytes in sizes])
    level.close()
    return len(keys)


def test_a_model_that_fails_before_anything_is_stored_leaves_nothing(place: Path) -> None:
    words = faulty("raises", "--set", "at=0", on="ram")
    line = complaint(*words, at=place, status=1)
    assert "ZeroDivisionError" in line
    assert "left" not in line
    command = [CKIO, *map(str, words), "--debug"]
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False)
    assert "in go_wrong" in done.stderr


def test_what_is_no_model_gets_one_line(place: Path, tmp_path: Path) -> None:
    for source, name, said in (
        ("def f(:", "m:f", "SyntaxError"),
        ("raise SystemExit(0)", "m:f", "SystemExit"),
        ("1 / 0", "m:f", "ZeroDivisionError"),
        ("f = 3", "m:f", "is an object; give its class, or a function"),
        ("f = dict", "m:f", "is no model: it has no 'layout'"),
        ("def f():\n  raise OSError('no wind.nc')", "m:f", "OSError: no wind.nc"),
        ("def f(grid): ...", "m:f", "needs the option 'grid'"),
        ("", "..:f", "MODULE:ATTRIBUTE"),
        ("", "m:", "MODULE:ATTRIBUTE"),
    ):
        (tmp_path / "m.py").write_text(source)
        words = ("--model", name, "--steps", 3, "--platform", place / "node.toml", "-o", "p.txt")
        assert said in complaint("plan", *words, at=tmp_path)


def test_what_a_model_prints_is_not_in_the_json(place: Path) -> None:
    done = ckio(*faulty("prints", into="prints"), "--json", at=place)
    assert json.loads(done.stdout)["steps"] == 50
    assert "as Fortran does" in done.stderr


def test_a_file_called_like_a_module_of_python_hides_nothing(place: Path, tmp_path: Path) -> None:
    for name in ("platform", "random", "statistics", "calendar"):
        (tmp_path / f"{name}.py").write_text("raise RuntimeError")
    (tmp_path / "ocean.py").write_text("raise ValueError")  # not imported: its costs are known
    words = [CKIO, "plan", "--steps", "3", *NODE_AND_MODEL, "--platform", str(place / "node.toml")]
    subprocess.run(words, cwd=tmp_path, check=True, capture_output=True)


def test_costs_that_the_platform_has_not_are_measured_and_that_is_said(place: Path) -> None:
    done = ckio(*run("vorticity", "--set", "grid=4", into="v", steps=3), at=place)
    assert "no costs of 'vorticity grid=4': they were measured now" in done.stderr
    assert done.stderr.count("\n") == 1
    # Also where there is no plan for them, which may be why.
    level = '[[level]]\nname = "ram"\n'
    known = f'[models."vorticity grid=4"]{COSTS}'
    (place / "small.toml").write_text(f"working_memory = 8\n{level}{known}")
    words = ("--steps", 3, "--platform", "small.toml", "--into", "w")
    line = complaint("run", "vorticity", "--set", "grid=5", *words, at=place)
    assert "raise `working_memory`; the platform has no costs of 'vorticity grid=5'" in line
    assert "(it has those of 'vorticity grid=4'): they were measured now" in line


def test_a_journal_that_cannot_be_written_is_seen_before_the_work(place: Path) -> None:
    for path, why in (("nowhere/log", "there is no directory"), (".", "it is a directory")):
        line = complaint(*run("ocean:faulty", "--log", path, into="w"), at=place)
        assert f"cannot be written: {why}" in line


def test_a_model_is_the_same_however_its_options_are_written() -> None:
    assert identity("m", {"b": 64.0, "a": True}) == identity("m", {"a": True, "b": 64})
    assert identity("m", {"a": "x b=1"}) != identity("m", {"a": "x", "b": 1})
    assert identity("m", {"a": 0.5}) != identity("m", {"a": 0})


# Places


def test_a_plan_that_the_disk_cannot_hold_is_seen_before_the_start(place: Path) -> None:
    text = (place / "node.toml").read_text()
    (place / "huge.toml").write_text(text.replace("capacity = 102400", "capacity = 90000000"))
    before = sorted(place.rglob("*"))
    words = (*run("ocean:faulty"), "--platform", "huge.toml", "--planner", "revolve:on=nvme")
    done = _limited(100_000, *words, at=place)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "level 'nvme' has no space for this plan" in done.stderr
    assert sorted(place.rglob("*")) == before


def test_a_disk_that_fills_during_a_run_is_told_and_the_run_goes_on(place: Path) -> None:
    """A codec was expected to do far better than it does."""
    text = (place / "node.toml").read_text().replace("capacity = 102400", "capacity = 4000000")
    codec = text.replace('path = "ck"}', 'path = "ck", codec = "zstd"}\nratio = 0.02')
    (place / "zstd.toml").write_text(codec)
    words = ("--platform", "zstd.toml", "--planner", "revolve:on=nvme", "--json")
    done = _limited(450_000, *run("ocean:faulty", into="full"), *words, at=place)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("\n") == 1
    for word in ("Write(x_", "on 'nvme'", "bytes are needed", "are free", "planned anew"):
        assert word in done.stderr
    with_working_memory = answer(
        *run("ocean:faulty", into="with-room"), "--platform", "zstd.toml", at=place
    )
    assert json.loads(done.stdout)["gradient_digest"] == with_working_memory["gradient_digest"]


def _limited(nbytes: int, *words: object, at: Path) -> subprocess.CompletedProcess[str]:
    """Run the command with files of so many bytes at most."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes, nbytes))

    return subprocess.run(
        [CKIO, *map(str, words)],
        cwd=at, capture_output=True, text=True, check=False, preexec_fn=limit,
    )  # fmt: skip


def test_directories_that_cannot_be_used_get_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "n.toml").write_text('[[level]]\nname = "ram"\n')
    words = ("run", "vorticity", "--set", "grid=4", "--steps", 3, "--platform", "n.toml")
    for into in ("file/run", "loop", "/proc", "/proc/nothing"):
        complaint(*words, "--into", into, at=tmp_path)
    for where in ("file", "file/ck", "loop/ck", "/proc/ck"):
        level = ("--level", f"a=directory:{where}", "--repeats", 1)
        complaint("calibrate", *level, "-o", "c.toml", at=tmp_path)


def test_levels_that_cannot_be_get_one_line(tmp_path: Path) -> None:
    for levels, said in (
        (["a=ram", "a=ram"], "two levels are named 'a'"),
        (["a=rum"], "did you mean ram"),
        (["a=directory"], "needs the option 'path'"),
        (["a=ram,capacity=-1"], "'-1' is not a size"),
        (["a=ram,capacity=10"], "is less than the smallest checkpoint"),
        (["a b=ram"], "a name is letters"),
        (["a"], "is not NAME=BACKEND"),
        (["a=ram,capacity=8Mbit"], "(MB is 10^6 bytes, MiB is 2^20, M alone is MiB)"),
        (["a=directory:ck,codec=gzip"], f"named 'gzip'; known: {', '.join(names('codecs'))}"),
        (["a=directory:ck,codec=zst"], "no codec is named 'zst'; did you mean zstd?"),
        (["a=directory:ck,codec=zstd,codec_levle=3"], "no option 'levle'; did you mean level?"),
        (["a=directory:ck,codec=zstd,codec_level=99"], "level = 99"),
        (["a=directory:ck,codec_level=3"], "no codec for 'codec_level'"),
        (["a=directory:ck,durability=fsync"], "durability 'fsync' is not known"),
    ):
        words = [word for level in levels for word in ("--level", level)]
        assert said in complaint("calibrate", *words, at=tmp_path)


# Files


def test_a_device_is_written_to_and_not_replaced(place: Path) -> None:
    words = ("plan", "--steps", 3, *NODE_AND_MODEL)
    os.mkfifo(place / "pipe")
    (place / "link.txt").symlink_to("target.txt")
    reader = os.open(place / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    ckio(*words, "-o", "pipe", at=place)
    assert os.read(reader, 15) == b"# ckio schedule"
    os.close(reader)
    assert (place / "pipe").is_fifo()
    ckio(*words, "-o", "link.txt", at=place)
    assert (place / "link.txt").is_symlink()
    assert (place / "target.txt").read_text().startswith("# ckio schedule")


def test_a_place_that_cannot_be_written_is_seen_before_the_work(place: Path) -> None:
    for path in (".", "", "nowhere/x", "node.toml/x"):
        line = complaint("calibrate", "--level", "a=ram", "--repeats", 10**9, "-o", path, at=place)
        assert ("cannot be written" if path else "it is empty") in line


def test_schedules_that_are_not_legal_are_bad_input(place: Path) -> None:
    ckio("plan", "--steps", 9, *NODE_AND_MODEL, "--overlap", "none", "-o", "plan.txt", at=place)
    text = (place / "plan.txt").read_text()
    for new, said in (
        (text.replace("# steps 9", "# steps 8"), "not legal"),
        (text[: len(text) // 2], "expected|cut off"),
        (re.sub(r"schedule \d", "schedule 99", text, count=1), "newer ckio"),
        (text.replace("capacity = 102400", "capacity = 1"), "it was edited"),
    ):
        (place / "edited.txt").write_text(new)
        assert re.search(f"edited.txt.*({said})", complaint("simulate", "edited.txt", at=place))
    assert "--steps" in complaint("simulate", "plan.txt", "--steps", 3, at=place)


# Signals and streams


def test_a_run_that_is_interrupted_says_what_is_left_and_lets_go(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        into = f"stopped-{number.name}"
        monkeypatch.setenv("KILL", f"step:60:{int(number)}")
        words = ("--planner", "revolve:on=nvme")
        done = ckio(*run("ocean:faulty", into=into), *words, at=place, status=75)
        assert done.stderr.startswith(f"ckio: stopped by {number.name}: ")
        run_id = json.loads((place / into / "manifest.json").read_text())["run"]
        fd = os.open(place / "ck" / run_id, os.O_RDONLY)
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(fd)


@pytest.mark.slow
def test_calibrate_that_is_interrupted_leaves_nothing(tmp_path: Path) -> None:
    levels = ("a=directory:deep/er,capacity=8KiB", "b=hdf5:deep/b.h5,capacity=8KiB")
    words = [word for level in levels for word in ("--level", level)]
    command = [CKIO, "calibrate", *words, "--repeats", "20000"]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        while not (tmp_path / "deep").exists():
            assert process.poll() is None
            time.sleep(0.01)
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        assert process.communicate()[1] == "ckio: interrupted\n"
    assert process.returncode == 130
    assert list(tmp_path.iterdir()) == []


PLAN = f"{CKIO} plan --steps 40 --platform node.toml --model ocean:faulty"


def shell(script: str, at: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(["sh", "-c", script], cwd=at, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_streams_may_be_closed_cut_short_or_ascii(place: Path) -> None:
    for script in (
        f"{PLAN} | true",
        f"{PLAN} --json | true",
        f"{PLAN} >&-",
        f"PYTHONIOENCODING=ascii {PLAN}",
        f"PYTHONIOENCODING=latin-1 {PLAN} -o λ.txt",
        f"env -u HOME COLUMNS=7 {PLAN} <&-",
        f"{sys.executable} -O {PLAN}",
    ):
        done = shell(script, place)
        assert (done.returncode, done.stderr) == (0, ""), script


@pytest.mark.slow
def test_stdout_on_a_full_disk_gets_one_line(place: Path) -> None:
    for script in (PLAN, f"{PLAN} --json", f"PYTHONUNBUFFERED=1 {PLAN}", f"{CKIO} plan --help"):
        done = shell(f"{script} >/dev/full", place)
        assert done.returncode == 1
        assert done.stderr.count("\n") == 1
        assert "stdout cannot be written: No space left on device" in done.stderr
