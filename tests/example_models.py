"""The models of the examples, for benches and tests: `from example_models.ocean import Ocean`."""

from pathlib import Path
from typing import Final

EXAMPLES: Final = Path(__file__).parents[1] / "examples"

__path__ = sorted(str(model.parent) for model in EXAMPLES.glob("*/*.py"))
