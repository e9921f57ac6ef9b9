"""The reference: which names stand on which page; the docstrings say the rest.

A name ending in `.*` stands for all that a package offers: its `__all__`, or its modules where it
has none.
"""

import importlib
import inspect
from pathlib import Path
from typing import Any, Final

PAGES: Final = {
    "values": (
        "Chains, platforms, schedules",
        "Values: frozen, comparable, and checked when they are made. Seconds and bytes throughout.",
        "Chain Platform Level Affine Overlap Schedule makespan Timeline Key Kind Field Flow Step"
        " schedule.counts schedule.replay.validate schedule.machine.Machine schedule.timeline.Event"
        " actions.Advance actions.Record actions.Reverse actions.Write actions.Read"
        " actions.Discard actions.variables.Variables platform.clock platform.memory"
        " platform.costs platform.profile"
        " schedule.policy schedule.text.*",
    ),
    "planners": (
        "Planners",
        "Each is one function of a chain and a platform. Which of them when is on"
        " [a page of its own](../which_schedule.md).",
        "plan planners.* planners.base planners.overlap planners.resume",
    ),
    "models": (
        "Models",
        "What you write: the forward and the adjoint of a step. [Your own model](../own_model.md)"
        " begins with an example.",
        "functions ArrayModel model.Model model.Handing model.TwiceDifferentiable sizes_of"
        " check_gradient model"
        " model.arraymodel",
    ),
    "levels": (
        "Levels",
        "Where checkpoints lie. What a level promises is on [a page of its own](../promises.md).",
        "Ram Directory Hdf5 Compressed Zstd backends.base compression.* compression.base",
    ),
    "jobs": (
        "Runs that survive their process",
        "A run as one object: begun, stopped, resumed, with its gradient in a file. How it is used"
        " is told in [recovery](../recovery.md).",
        "gradient hessian_product Job Result Halted lease jobs.request jobs.directory"
        " jobs.gradients jobs.display jobs.journal jobs.leftovers jobs.planning jobs.sweeping"
        " jobs.analyzing",
    ),
    "doing": (
        "Measure, simulate, run, compare",
        "The interpreters of a schedule, and what goes on when a run does not end well.",
        "calibrate simulate run runner.perform.perform runner.failover.failover run_to_end compare"
        " render planners.recovery.* report report.trace report.page",
    ),
    "variables": (
        "What goes into a checkpoint",
        "How it is used is told in [what goes into a checkpoint](../variables.md).",
        "analysis.* analysis.model_arrays analysis.snapshots analysis.partitioned",
    ),
    "programs": (
        "Programs",
        "How they are used is told in [the gradient of a program as it is](../programs.md).",
        "program programs.*",
    ),
    "errors": ("Errors", "Each names the thing, the rule, and what to do.", "errors"),
    "doors": (
        "Adapters and extensions",
        "Other frameworks, and other people's backends, planners, codecs and models.",
        "model.comm parallel.group parallel.agreed testing.* adapters.*",
    ),
}
"""Title, a sentence, and names; first those of `import ckio`, then what lies deeper."""


def on_config(config: Any) -> Any:
    """Put the pages where the navigation names the folder."""
    for entry in config.nav:
        for below in entry.values():
            if isinstance(below, list) and "reference/" in below:
                place = below.index("reference/")
                below[place : place + 1] = ["reference/index.md", *map(_place, PAGES)]
    return config


def on_files(files: Any, *, config: Any) -> Any:
    """Add the pages."""
    from mkdocs.structure.files import File

    files.append(File.generated(config, "reference/index.md", content=index()))
    for slug in PAGES:
        files.append(File.generated(config, _place(slug), content=page(slug)))
    return files


def page(slug: str, /) -> str:
    """A page: its names, one after the other, each once."""
    title, sentence, _ = PAGES[slug]
    return f"# {title}\n\n{sentence}\n\n" + "\n".join(f"::: {name}\n" for name in names(slug))


def index() -> str:
    """The first page: the names of `import ckio`, with the first sentence of each."""
    import ckio

    home = {name: slug for slug in PAGES for name in names(slug)}
    text = (
        "# Reference\n\nFrom the docstrings. What is used most is there after `import ckio`; a name"
        " in the left column leads to all that is said of it.\n"
    )
    for slug, (title, sentence, _) in PAGES.items():
        here = [name for name in ckio.__all__ if home[f"ckio.{name}"] == slug]
        told = "".join(f"| [`{name}`][ckio.{name}] | {_first(ckio, name)} |\n" for name in here)
        text += f"\n## [{title}]({slug}.md)\n\n{sentence}\n\n"
        text += f"| name | |\n|---|---|\n{told}" if here else ""
    return text


def names(slug: str, /) -> list[str]:
    """The full names on a page."""
    found: list[str] = []
    for word in PAGES[slug][2].split():
        package = (
            importlib.import_module(f"ckio.{word.removesuffix('.*')}") if "*" in word else None
        )
        if package is None:
            found.append(f"ckio.{word}")
        else:
            below = getattr(package, "__all__", None) or _modules(package)
            found += [f"{package.__name__}.{name}" for name in sorted(below, key=str.lower)]
    elsewhere = {
        "ckio.planners.recovery.recover",
        "ckio.planners.recovery.with_adjoint_checkpoints",
    }
    elsewhere |= {"ckio.programs.program", "ckio.compression.Zstd"}
    return [name for name in found if name not in elsewhere]


def _modules(package: Any) -> list[str]:
    """The modules and packages in a package."""
    (folder,) = map(Path, package.__path__)
    inside = [path.stem for path in folder.glob("*.py") if not path.stem.startswith("_")]
    return inside + [path.parent.name for path in folder.glob("*/__init__.py")]


def _first(package: Any, name: str) -> str:
    """The first sentence of a docstring, on one line."""
    doc = inspect.getdoc(getattr(package, name)) or ""
    line = " ".join(doc.split("\n\n")[0].split())
    return line.split(". ")[0].rstrip(".").replace("|", "\\|") + "."


def _place(slug: str) -> str:
    return f"reference/{slug}.md"
