"""A model's images are of its last state and of its gradient, and never make a run fail."""

import logging
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli.commands import ckio, complaint

from ckio import ArrayModel, Job, Level, Platform
from ckio.errors import BadInput
from ckio.jobs.images import read_images
from ckio.models.burgers import Burgers
from ckio.models.vorticity import Vorticity
from ckio.models.wave import Wave

PLATFORM = Platform((Level(name="ram", capacity=4096),))
STEPS = 6


class Growing(ArrayModel):
    """u grows by a factor in each step; J is the sum of the last u."""

    def __init__(self) -> None:
        u = np.array([[1.0, -2.0], [0.5, 4.0]])
        super().__init__({"u": u, "J": 0.0}, control={"u": u, "k": 2.0}, tape=["u"])

    def step(self, state: Any, i: int, /) -> None:
        state["J"] += state["u"].sum()
        state["u"] *= self.control["k"]

    def adjoint_step(self, adjoint: Any, tape: Any, i: int, /) -> None:
        self.gradient["k"] += (tape["u"] * adjoint["u"]).sum()
        adjoint["u"] *= self.control["k"]
        adjoint["u"] += adjoint["J"]


def finished(at: Path, model: Any, **options: Any) -> Any:
    arguments = {"steps": STEPS, "platform": PLATFORM, **options}
    return Job(at / "run", model=model, **arguments).run()


def test_they_are_of_the_last_state_and_of_the_gradient(tmp_path: Path) -> None:
    result = finished(tmp_path, Growing)
    assert [(image.name, image.what) for image in result.images] == [
        ("u", "state at step 6"),
        ("u", "gradient"),
    ]
    state, gradient = result.images
    assert (state.low, state.high) == (-2.0 * 2**STEPS, 4.0 * 2**STEPS)
    assert gradient.low == gradient.high == sum(2**k for k in range(STEPS))
    assert result.gradient["u"].tolist() == np.full((2, 2), gradient.low).tolist()
    again = Job(tmp_path / "run", model=Growing, steps=STEPS).result()
    assert [image.html() for image in again.images] == [image.html() for image in result.images]


def test_a_state_of_complex_numbers_has_images_of_the_other_arrays() -> None:
    state = {"psi": np.ones(3, complex), "text": np.array(["a", "b"]), "v": np.ones(3), "J": 0.0}

    class Complex(Growing):
        def __init__(self) -> None:
            ArrayModel.__init__(self, state, control={"v": state["v"]})

    assert [*Complex().images()] == ["v"]


def test_few_slots_take_no_other_state(tmp_path: Path) -> None:
    """Steps are computed again and again, and the last one is the first that was reached."""
    few = Platform((Level(name="ram", capacity=80),))
    result = finished(tmp_path, Growing, platform=few, planner="revolve")
    assert result.figures["forward_steps"] > STEPS
    assert result.images[0].high == 4.0 * 2**STEPS


class Broken(Growing):
    def images(self) -> Any:
        raise ZeroDivisionError("no picture today")


class Listing(Growing):
    def images(self) -> Any:
        return [self.gradient["u"]]


class Odd(Growing):
    def images(self) -> Any:
        return {"point": np.zeros(()), "cube": np.zeros((2, 2, 2)), "u": np.full((2, 2), np.nan)}


@pytest.mark.parametrize(
    ("model", "problems", "images"),
    [
        (Broken, ["images() of the model failed: ZeroDivisionError: no picture today"], 0),
        (Listing, ["images() of the model failed: BadInput: it returned list"], 0),
        (Odd, ["image 'point' has shape ()", "image 'cube' has shape (2, 2, 2)"], 1),
    ],
)
def test_what_goes_wrong_is_said_and_the_run_ends_well(
    model: Any,
    problems: list[str],
    images: int,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING, "ckio"):
        result = finished(tmp_path, model)
    assert result.functional == pytest.approx(3.5 * (2**STEPS - 1))
    assert [image.what for image in result.images] == ["state at step 6"] * images + ["gradient"]
    assert len(result.problems) == len(problems)
    for problem, said in zip(problems, result.problems, strict=True):
        assert problem in said
        assert problem in caplog.text
    assert read_images(tmp_path / "run")[1] == list(result.problems)


def test_a_model_without_images_has_no_file(tmp_path: Path) -> None:
    class Silent(Growing):
        images: Any = None

    assert finished(tmp_path, Silent).images == ()
    assert not (tmp_path / "run" / "images.json").exists()


def test_a_model_that_finishes_itself_has_its_last_state(tmp_path: Path) -> None:
    result = finished(tmp_path, lambda: Burgers(grid=16), steps=None)
    steps = result.figures["steps"]
    assert [(image.name, image.what) for image in result.images] == [
        ("u", f"state at step {steps}"),
        ("u", "gradient"),
    ]
    model = Burgers(grid=16)
    model.advance(0, steps)
    assert result.images[0].high == pytest.approx(float(model.images()["u"].max()))


def test_the_example_models_offer_images() -> None:
    for model, names in (
        (Vorticity(grid=8), {"zeta": (9, 9), "psi": (9, 9)}),
        (Wave(grid=32), {"u": (32, 32)}),
        (Burgers(grid=16), {"u": (17,)}),
    ):
        assert {name: array.shape for name, array in model.images().items()} == names


def test_the_page_of_a_run_shows_them_and_damaged_ones_are_refused(tmp_path: Path) -> None:
    finished(tmp_path, Growing)
    ckio("show", "run/measured.txt", "--html", "page.html", at=tmp_path)
    page = (tmp_path / "page.html").read_text()
    assert page.count('<div class="thumbnail"><img src="data:image/png;base64,') == 2
    assert "State and gradient" in page
    (verdict,) = re.findall(r'<p class="verdict">(.*?)</p>', page)
    assert verdict.startswith("Gradient of 6 steps, not checked. At most ")
    assert "Predicted " in verdict
    file = tmp_path / "run" / "images.json"
    file.write_text(file.read_text().replace("state at", "<b>at"))
    assert "images.json is damaged" in complaint(
        "show", "run/measured.txt", "--html", "page.html", at=tmp_path
    )
    with pytest.raises(BadInput, match=r"images\.json is damaged"):
        read_images(tmp_path / "run")
