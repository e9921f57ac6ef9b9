"""What is known of the page cache, and how accesses vary."""

from pathlib import Path

import numpy as np
import pytest

from ckio.calibrate.samples import dirty_limit, quantiles, touch
from ckio.platform.profile import Quantiles


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


@pytest.mark.parametrize("count", [5, 20, 21, 1000])
def test_factors_have_the_mean_1(count: int) -> None:
    random = np.random.default_rng(count)
    spread = quantiles([random.lognormal(3.0, 0.4, count), random.lognormal(-2.0, 0.4, count)])
    assert spread is not None
    assert len(spread.factors) == min(21, 2 * count)
    assert spread.draw(random, 100_000).mean() == pytest.approx(1.0, abs=0.02)


def test_factors_are_those_that_were_drawn() -> None:
    random = np.random.default_rng(0)
    spread = quantiles([random.lognormal(0.0, 0.3, 100_000)])
    assert spread is not None
    middle = spread.factors[len(spread.factors) // 2]
    assert middle == pytest.approx(np.exp(-(0.3**2) / 2), rel=0.02)


def test_a_handful_says_nothing() -> None:
    assert quantiles([np.ones(4)]) is None
    assert quantiles([]) is None
    assert quantiles([np.ones(6)]) == Quantiles((1.0,) * 6)
