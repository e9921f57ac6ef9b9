"""How long does a command take from the start of its process?"""

import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import record

CKIO = Path(sys.executable).with_name("ckio")
PLATFORMS = {
    "arch_1": "4\n1 1 1\n1 5 5\n2 10 10\n20 20 20\n",
    "arch_2": "3\n2 .5 .5\n20 10 10\n20 20 20\n",
    "RAM, NVMe, archive": "3\n50 .05 .05\n1000 1 1\n10000 5 5\n",
}
"""Those of paper 004, and one as machines are."""


def ckio(*words: str, at: Path) -> None:
    subprocess.run([str(CKIO), *words], cwd=at, check=True, capture_output=True)


def commands(at: Path, steps: int) -> dict[str, list[str]]:
    found = {"ckio --help": ["--help"], "ckio plan --help": ["plan", "--help"]}
    for number, (name, text) in enumerate(PLATFORMS.items()):
        file = f"{number}.txt"
        (at / file).write_text(text)
        found[f"ckio plan, {steps} steps, {name}"] = [
            *("plan", "--steps", str(steps), "--platform", file, "--json")
        ]
    return found


def table() -> str:
    rows = []
    with tempfile.TemporaryDirectory() as place:
        for name, words in commands(Path(place), 1000).items():
            took = [record.seconds(lambda w=words: ckio(*w, at=Path(place))) for _ in range(7)]
            rows.append([name, f"{statistics.median(took):.2f}", f"{max(took):.2f}"])
    return record.columns(["seconds from the start of the process", "median of 7", "worst"], rows)


def test_every_command_that_is_timed_works(benchmark, tmp_path: Path) -> None:
    benchmark(lambda: [ckio(*words, at=tmp_path) for words in commands(tmp_path, 5).values()])


if __name__ == "__main__":
    record.save("start", table())
