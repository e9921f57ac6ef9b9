"""How far is the demo's prediction from what it measures, and how long does the whole loop take?"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
import record

CKIO = Path(sys.executable).with_name("ckio")
PLANNERS = ("hrevolve", "hrevolve-2020", "revolve", "periodic")


def demo(planner: str, *options: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as place:
        command = [str(CKIO), "demo", "--json", "--planner", planner, *options]
        done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def table(*, rounds: int = 3) -> str:
    rows = []
    for planner in PLANNERS:
        for _ in range(rounds):
            found: dict[str, Any] = {}
            took = record.seconds(lambda p=planner, f=found: f.update(demo(p)))
            error = found["predicted"] / found["measured"] - 1
            rows.append(
                [
                    planner,
                    f"{found['steps']}",
                    f"{found['forward_steps']}",
                    f"{found['predicted']:.3f}",
                    f"{found['measured']:.3f}",
                    f"{error:+.1%}",
                    "yes" if found["verified"] else "NO",
                    f"{took:.1f}",
                ]
            )
    header = ["planner", "steps", "forward", "predicted s", "measured s", "error", "verified"]
    return record.columns([*header, "whole demo s"], rows)


@pytest.mark.parametrize("planner", PLANNERS)
def test_the_demo_verifies_its_gradient(planner: str) -> None:
    assert demo(planner, "--steps", "40", "--grid", "16")["verified"] is True


if __name__ == "__main__":
    record.save("demo", table())
