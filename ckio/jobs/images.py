"""Images of a model's state and gradient, taken during a run, and their file.

A model may have a method `images()` that returns arrays of one or two dimensions by name. ckio
calls it when the forward sweep has reached the last step. It takes images of the gradient after the
reverse sweep. An error here does not end the run: it is a warning, and a line of the report.
"""

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ckio.actions import Advance, Record
from ckio.errors import BadInput
from ckio.jobs.directory import IMAGES, RunDirectory, read_text, unsealed
from ckio.platform.readable import json_line
from ckio.report.thumbnails import MOST_IMAGES, Thumbnail, read_thumbnails, thumbnail
from ckio.schedule.timeline import Event


@dataclass
class ImageTaker:
    """The images of one run, and the problems with them.

    Attributes
    ----------
    steps : int
        The number of time steps of the run.
    warn : callable
        Is called with each problem.
    images : list of Thumbnail
        The images so far.
    problems : list of str
        The problems so far.
    """

    steps: int
    warn: Callable[[str], Any]
    images: list[Thumbnail] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    _has_state: bool = False

    def watch(self, event: Event, model: Any, /) -> None:
        """Take images of the state when the forward sweep has reached the last step."""
        match event.action:
            case Advance(_, end) | Record(_, end) if end == self.steps and not self._has_state:
                self._has_state = True
                self._take("images()", f"state at step {self.steps:,}", model.images)

    def take_gradient(self, model: Any, /) -> None:
        """Take images of those arrays of the gradient that have one or two dimensions."""
        self._take("gradient", "gradient", lambda: _drawable(model.gradient))

    def write(self, directory: RunDirectory, /) -> None:
        """Write the images and the problems to the directory of the run."""
        if not self.images and not self.problems:
            return
        data = {"images": [image.data() for image in self.images], "problems": self.problems}
        try:
            directory.write(IMAGES, json_line(data))
        except BadInput as error:
            self._blame(f"the images are not stored: {error}")

    def _take(self, source: str, what: str, call: Callable[[], Any]) -> None:
        try:
            entries = list(_arrays(call()).items())
        except Exception as error:
            self._blame(f"{source} of the model failed: {type(error).__name__}: {error}")
            return
        for name, array in entries:
            if len(self.images) == MOST_IMAGES:
                self._blame(f"only the first {MOST_IMAGES} images are stored")
                return
            try:
                self.images.append(thumbnail(name, what, array))
            except Exception as error:
                self._blame(f"{source} of the model: {error}")

    def _blame(self, problem: str) -> None:
        self.problems.append(problem[:300])
        self.warn(problem[:300])


def taker_of(model: Any, steps: int, warn: Callable[[str], Any], /) -> ImageTaker | None:
    """Return an ImageTaker, or None if the model has no method `images()`."""
    return ImageTaker(steps, warn) if callable(getattr(model, "images", None)) else None


def _arrays(value: object) -> Mapping[str, Any]:
    if isinstance(value, Mapping):
        return value
    raise BadInput(f"it returned {type(value).__name__}; return a mapping of names to arrays")


def _drawable(gradient: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arrays of a gradient with one or two dimensions and more than one value."""
    return {
        name: array
        for name, array in gradient.items()
        if getattr(array, "ndim", 0) in (1, 2) and getattr(array, "size", 0) > 1
    }


def read_images(path: Path, /) -> tuple[list[Thumbnail], list[str]]:
    """Return the images in the directory of a run, and the problems with them.

    Raises BadInput if the file of images is damaged.
    """
    file = path / IMAGES
    if not file.is_file():
        return [], []
    data: object = None
    with suppress(ValueError, RecursionError):
        data = json.loads(unsealed(read_text(file), file))
    if not isinstance(data, dict) or not isinstance(problems := data.get("problems"), list):
        raise BadInput(f"{file} is damaged: it has no images")
    return read_thumbnails(data.get("images")), [str(problem)[:300] for problem in problems[:20]]
