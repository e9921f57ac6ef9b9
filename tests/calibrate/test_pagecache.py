"""What is known of the page cache."""

from pathlib import Path

from ckio.calibrate.samples import dirty_limit, touch


def system(root: Path, **numbers: int) -> Path:
    """A root with what /proc says of memory in it."""
    folder = root / "proc/sys/vm"
    folder.mkdir(parents=True)
    for name, number in numbers.items():
        (folder / name).write_text(f"{number}\n")
    (root / "proc/meminfo").write_text("MemTotal: 4000 kB\nMemAvailable: 2000 kB\n")
    return root


def test_what_may_wait_is_a_part_of_memory_or_so_many_bytes_or_unknown(tmp_path: Path) -> None:
    ratio = system(tmp_path / "ratio", dirty_bytes=0, dirty_ratio=20)
    assert dirty_limit(ratio) == 400 * 1024
    assert dirty_limit(system(tmp_path / "bytes", dirty_bytes=12345, dirty_ratio=0)) == 12345
    assert dirty_limit(tmp_path) is None


def test_memory_is_touched_and_given_back() -> None:
    touch(1 << 20)
    touch(0)
