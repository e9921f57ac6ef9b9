"""Packs the wheel of the example, so that its test needs nothing from the network."""

import tomllib
from pathlib import Path
from typing import Any
from zipfile import ZipFile

HERE = Path(__file__).parent


def build_wheel(
    wheel_directory: str, config_settings: Any = None, metadata_directory: Any = None
) -> str:
    """What pip asks of a build backend (PEP 517); returns the name of the wheel."""
    project = tomllib.loads((HERE / "pyproject.toml").read_text())["project"]
    name = f"{project['name'].replace('-', '_')}-{project['version']}"
    info = f"{name}.dist-info"
    files = {
        f"{info}/METADATA": _metadata(project),
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": _entry_points(project["entry-points"]),
    }
    for path in sorted(HERE.glob("ckio_example/*.py")):
        files[f"ckio_example/{path.name}"] = path.read_text()
    files[f"{info}/RECORD"] = "".join(f"{path},,\n" for path in [*files, f"{info}/RECORD"])
    wheel = f"{name}-py3-none-any.whl"
    with ZipFile(Path(wheel_directory) / wheel, "w") as archive:
        for inside, text in files.items():
            archive.writestr(inside, text)
    return wheel


def _metadata(project: dict[str, Any]) -> str:
    needed = "".join(f"Requires-Dist: {each}\n" for each in project["dependencies"])
    name, version = project["name"], project["version"]
    return f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needed}"


def _entry_points(groups: dict[str, dict[str, str]]) -> str:
    lines = []
    for group, found in groups.items():
        lines += [f"[{group}]", *(f"{name} = {where}" for name, where in found.items())]
    return "\n".join(lines) + "\n"
