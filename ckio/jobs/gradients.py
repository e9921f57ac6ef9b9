"""The file of a gradient, which plain h5py reads, and controls from such files.

    functional          J, a scalar
    gradient/NAME       dJ/d(NAME), with the attribute `units`
    control/NAME        the control at which the gradient was computed
    parts/RANK/...      with many ranks: the part of each rank of both

If all ranks share a control, its datasets have its own shape, and its gradient is the sum over the
ranks. Other controls have a part on each rank. Their `gradient/NAME` and `control/NAME` are what
the model's method `gathered` returns, or without this method the flattened parts of the ranks, one
after the other. The attributes of the root are the run, the model and the number of steps. The
checksum of the file's bytes is stored elsewhere: for the gradient in result.json, and for controls
in the manifest.
"""

import io
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import numpy as np
import xxhash

from ckio.actions import Key, Kind
from ckio.actions.checks import describe
from ckio.backends.files import write_whole
from ckio.errors import BadInput, StorageError, UnsupportedKind
from ckio.jobs.directory import GRADIENT, RESULT, checksum_of
from ckio.model import Array, Differentiable, layout_of, optional
from ckio.parallel.group import ALONE, RankGroup

FORMAT: Final = 1

_SLACK: Final = 1 << 14
"""Bytes of a file in addition to its arrays, and to 2 KiB for each of them."""

Arrays = Mapping[str, Array]


def digest(gradient: Mapping[str, Any], /) -> str:
    """Return a digest of the names and bytes of the arrays, in hexadecimal digits.

    It is the same for two gradients only if they are bitwise equal. Raises BadInput for a dtype
    that NumPy does not have, for example bfloat16, because files of HDF5 do not have it either.
    """
    hasher = xxhash.xxh3_128()
    for name in sorted(gradient):
        array = np.ascontiguousarray(gradient[name])
        if array.dtype.kind == "V":
            raise BadInput(
                f"control {name!r} has dtype {array.dtype}, in which a file cannot store its"
                " gradient; give it in float32, and let the step convert it"
            )
        hasher.update(name.encode())
        hasher.update(array.data)
    return hasher.hexdigest()


def shared_controls(model: Any, control: Arrays, ranks: RankGroup, /) -> frozenset[str]:
    """Return the names of the controls that all ranks share. Of the others, each has a part.

    The model declares them as `shared_controls`. If it does not, they are those that are equal on
    all ranks, to the last bit, and whose shape a method `gathered(name, array)` of the model keeps.
    Without this method, an equal control is refused if it has the shape of an array of the state
    on all ranks: it may be a uniform field, of which each rank has a part.

    Raises BadInput on all ranks if ranks have controls of other names, if a declared control is
    unknown or differs between ranks, or if it cannot be decided whether ranks share a control.
    """
    if ranks.is_alone:
        return frozenset()
    declared, gathered = optional(model).shared_controls, optional(model).gathered
    mine = {name: (array.shape, digest({name: array})) for name, array in control.items()}
    every = ranks.gather(mine)
    names = [f"{name} ({array.dtype})" for name, array in control.items()]
    if len(texts := set(map(", ".join, ranks.gather(names)))) > 1:
        raise BadInput(
            f"the ranks have different controls: {' and '.join(sorted(texts))}; give all ranks the"
            " same, in the same order, and an empty array to a rank that has no part of one"
        )
    equal = [name for name in mine if all(each[name] == mine[name] for each in every)]
    if declared is not None:
        if unequal := sorted(set(declared) - set(equal)):
            raise BadInput(
                f"`shared_controls` has {unequal[0]!r}, which is no control, or differs between"
                " ranks; name the controls that are equal on all ranks"
            )
        return frozenset(declared)
    if gathered is not None:
        return frozenset(
            name for name in equal if np.shape(gathered(name, control[name])) == mine[name][0]
        )
    shapes = _state_shapes(model)
    fields = [name for name in equal if control[name].size > 1 and control[name].shape in shapes]
    if fields := sorted(set.intersection(*map(set, ranks.gather(fields)))):
        name = fields[0]
        raise BadInput(
            f"control {name!r} has the shape of an array of the state and is equal on all ranks:"
            " do they share it, or has each a part of it?"
            f" Declare it in the model's class: shared_controls = ({name!r},) if its gradient is"
            " the sum over the ranks, or shared_controls = () if the ranks have parts"
        )
    return frozenset(name for name in equal if control[name].size)


def _state_shapes(model: Any) -> set[tuple[int, ...]]:
    """Return the shapes of the arrays of the state; none if the model stores no states."""
    with suppress(UnsupportedKind):
        return {tuple(field.shape) for field in layout_of(model, Key(Kind.RESTART, 0))}
    return set()


def whole(
    model: Differentiable, arrays: Mapping[str, Any], shared: Collection[str], ranks: RankGroup, /
) -> Mapping[str, Any]:
    """Gather arrays from all ranks: each rank gets the whole array of each control.

    Those that all ranks share are returned as they are. Of the others, a method
    `gathered(name, array)` of the model returns the whole. Without this method the flattened parts
    of the ranks are concatenated.
    """
    if ranks.is_alone:
        return arrays
    gathered = optional(model).gathered
    together = dict(arrays)
    for name in (name for name in arrays if name not in shared):
        if gathered is not None:
            together[name] = np.asarray(gathered(name, arrays[name]))
        else:
            together[name] = np.concatenate(ranks.gather(np.ravel(arrays[name])))
    return together


def controls_of(model: Differentiable, /) -> Arrays:
    """Return the controls of a model; an empty mapping if it has none."""
    return optional(model).control or {}


def check_names(what: str, names: Collection[str], /) -> None:
    """Raise BadInput, with `what` as the subject, if a file cannot have controls of these names.

    A name with slashes is that of a dataset in groups. Therefore "T" and "T/flux" exclude each
    other, and HDF5 has no name such as "", "u/" or ".".
    """
    arrays = {f"control/{name}": np.zeros(0) for name in names}
    try:
        held = _arrays_in(_packed(arrays, {}, {}), Path(GRADIENT))
    except Exception:  # h5py raises many kinds of errors for a name
        held = {}
    if held.keys() != arrays.keys():
        raise BadInput(
            f"{what}: the file of the gradient cannot have all of the controls"
            f" {', '.join(map(repr, names))}; name them otherwise: between slashes, a name is"
            ' neither empty nor "." and has no NUL, and no control has the name of a group of'
            ' others ("T" and "T/flux")'
        )


def space_for(model: Differentiable, ranks: RankGroup, /) -> dict[str, int]:
    """Return an upper bound of the bytes of the files of the gradient and of the result."""
    control = controls_of(model)
    copies = 2 if ranks.is_alone else 4  # the whole, and the parts
    nbytes = sum(ranks.gather(sum(np.asarray(array).nbytes for array in control.values())))
    datasets = copies * len(control) * ranks.size
    return {GRADIENT: copies * nbytes + (datasets << 11) + _SLACK, RESULT: (datasets << 8) + _SLACK}


def write_gradient(
    path: Path,
    model: Differentiable,
    functional: float,
    about: Mapping[str, Any],
    ranks: RankGroup,
    /,
    *,
    gradient: Arrays,
    control: Arrays,
    shared: Collection[str] = (),
) -> str:
    """Write functional, gradient and controls of a run that has ended; return the file's checksum.

    Gradient and controls are those of this rank. Controls in `shared` are the same on all ranks.

    When this returns, the file is complete and on the disk, and its bytes were read and compared.
    This is a collective call; the first rank writes.

    Raises
    ------
    StorageError
        If the file cannot be written, or reading it returns other bytes.
    """
    names = {"gradient": gradient, "control": control}
    units, arrays = units_of(model), dict[str, Array]()
    attributes = dict[str, dict[str, Any]]()
    for group, live in names.items():
        mine = {name: np.asarray(array) for name, array in live.items()}
        for name, array in whole(model, mine, shared, ranks).items():
            unit = units.get(name, "")
            unit = f"{units.get('J') or '1'} / ({unit or '1'})" if group == "gradient" else unit
            arrays[f"{group}/{name}"] = np.asarray(array)
            attributes[f"{group}/{name}"] = {"units": unit}
        parts = {name: array for name, array in mine.items() if name not in shared}
        for rank, each in enumerate(ranks.gather(parts) if not ranks.is_alone else ()):
            arrays |= {f"parts/{rank}/{group}/{name}": part for name, part in each.items()}
    arrays["functional"] = np.asarray(functional)
    attributes["functional"] = {"units": units.get("J", "")}

    def written() -> str:
        data = _packed(arrays, attributes, {**about, "format": FORMAT})
        checksum = checksum_of(data)
        try:
            write_whole(path, data)
            _bytes_of(path, checksum)
        except (OSError, BadInput) as error:
            why = getattr(error, "strerror", None) or error
            raise StorageError(
                f"{path}: the gradient cannot be written: {why}; free space, and resume the run"
            ) from None
        return checksum

    return ranks.once(written)


def read_gradient(path: Path, checksum: str, /, ranks: RankGroup = ALONE) -> tuple[Arrays, Arrays]:
    """Read gradient and controls of a run; with many ranks, the parts of this rank.

    Raises BadInput if the file has another checksum.
    """
    arrays = _arrays_in(_bytes_of(path, checksum), path)
    gradient, control = (_of_rank(f"{group}/", arrays, ranks) for group in ("gradient", "control"))
    return gradient, control


def _of_rank(group: str, arrays: Arrays, ranks: RankGroup) -> dict[str, Array]:
    """Return the arrays of a group: the part of this rank if the file has parts, or the whole."""

    def under(path: str) -> dict[str, Array]:
        return {at.removeprefix(path): arrays[at] for at in arrays if at.startswith(path)}

    return under(group) | ({} if ranks.is_alone else under(f"parts/{ranks.rank}/{group}"))


def read_control(path: Path, ranks: RankGroup = ALONE, /, *, checksum: str | None = None) -> Arrays:
    """Read controls from an npz file or an HDF5 file; raises BadInput, or for another checksum.

    In HDF5 they are the datasets of the group `control`, as in the file of a gradient. Without this
    group they are the datasets of the root. With many ranks, each rank gets its part if the file
    has parts, and otherwise the whole.
    """
    data = _bytes_of(path, checksum)
    if data.startswith(b"PK\x03\x04"):
        try:
            return dict(np.load(io.BytesIO(data), allow_pickle=False))
        except Exception as error:  # NumPy and zipfile raise many kinds of errors
            raise BadInput(f"{path} is no npz file of plain arrays: {error}") from None
    arrays = _arrays_in(data, path)
    if controls := _of_rank("control/", arrays, ranks):
        return controls
    return {name: array for name, array in arrays.items() if "/" not in name}


def given_control(given: Arrays | Path, ranks: RankGroup, /) -> Arrays:
    """Return controls that are given as arrays, or as the path of a file of arrays."""
    if isinstance(given, Path):
        return read_control(given, ranks)
    if not isinstance(given, Mapping):
        raise BadInput(
            f"control is {describe(given)}; give a dict of arrays by the names of the controls, or"
            " the path of a file"
        )
    return given


def packed_control(control: Arrays, ranks: RankGroup = ALONE, /) -> bytes:
    """Return the bytes of a file with the controls of each rank, which `read_control` reads."""
    every = enumerate(ranks.gather(dict(control)))
    arrays = {
        f"{'' if ranks.is_alone else f'parts/{rank}/'}control/{name}": np.asarray(array)
        for rank, mine in every
        for name, array in mine.items()
    }
    return _packed(arrays, {}, {"format": FORMAT})


def set_control(model: Differentiable, control: Arrays, /) -> None:
    """Copy controls into a fresh model; raises BadInput if they do not fit the model's controls."""
    own = optional(model).control
    if not own:
        raise BadInput("controls were given, and the model has none; leave them out")
    for name, value in control.items():
        if name not in own:
            raise BadInput(f"the model has no control {name!r}; it has {', '.join(sorted(own))}")
        for what, is_, its in (
            ("has shape", np.shape(value), own[name].shape),
            ("is", np.asarray(value).dtype, own[name].dtype),
        ):
            if is_ != its:
                raise BadInput(
                    f"control {name!r} {what} {is_}, and the model's {its}; they must be the same"
                )
    if missing := sorted(set(own) - set(control)):
        raise BadInput(f"the control {missing[0]!r} is missing; give all of the model's controls")
    for name, value in control.items():
        own[name][...] = value


def with_control(fresh: Callable[[], Any], control: Arrays, /) -> Callable[[], Any]:
    """Return a function that makes the same models with these controls."""

    def made() -> Any:
        model = fresh()
        set_control(model, control)
        return model

    return made


def units_of(model: Differentiable, /) -> dict[str, str]:
    """Return the units of the arrays of a model's state and of its adjoint, as far as given."""
    units = dict[str, str]()
    for kind in (Kind.ADJOINT, Kind.RESTART):
        with suppress(StorageError, BadInput):
            units |= {each.name: each.unit for each in layout_of(model, Key(kind, 0)) if each.unit}
    own: object = optional(model).units
    return units | dict(own) if isinstance(own, Mapping) else units


def _packed(
    arrays: Arrays, attributes: Mapping[str, Mapping[str, Any]], about: Mapping[str, Any]
) -> bytes:
    """Return an HDF5 file as bytes."""
    import h5py

    buffer = io.BytesIO()
    with h5py.File(buffer, "w") as file:
        for name, value in about.items():
            if value is not None:
                file.attrs[name] = value
        for path, array in arrays.items():
            group, (*groups, name) = file, path.split("/")
            for each in groups:  # by default, HDF5 lists the members of a group by name
                known = each in group
                group = group[each] if known else group.create_group(each, track_order=True)
            dataset = group.create_dataset(name, data=array)
            for attribute, value in attributes.get(path, {}).items():
                dataset.attrs[attribute] = value
    return buffer.getvalue()


def _bytes_of(path: Path, checksum: str | None = None) -> bytes:
    """Read a file; raises BadInput, also if its bytes have another checksum."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}") from None
    if checksum is not None and checksum_of(data) != checksum:
        raise BadInput(
            f"{path} is damaged: it is not as ckio wrote it (its checksum differs); restore the"
            " file"
        )
    return data


def _arrays_in(data: bytes, path: Path) -> dict[str, Array]:
    """Return all datasets of numbers in an HDF5 file, and nothing from outside of it."""
    import h5py

    try:
        with h5py.File(io.BytesIO(data), "r") as file:
            return {name: np.asarray(dataset[()]) for name, dataset in _datasets(file)}
    except BadInput as error:
        raise BadInput(f"{path}: {error}") from None
    except Exception as error:  # h5py raises many kinds of errors for a damaged file
        raise BadInput(f"{path} is no HDF5 file of plain arrays: {error}") from None


def _datasets(group: Any, path: str = "", /) -> Iterator[tuple[str, Any]]:
    """Yield all datasets of numbers in a group and its groups that are reached by hard links."""
    import h5py

    for name in group:
        if group.get(name, getlink=True, getclass=True) is not h5py.HardLink:
            continue
        item = group[name]
        if isinstance(item, h5py.Group):
            yield from _datasets(item, f"{path}{name}/")
        elif isinstance(item, h5py.Dataset):
            if item.external or item.is_virtual:
                raise BadInput(f"dataset {item.name!r} is stored in another file")
            if item.dtype.kind not in "fiucb":
                raise BadInput(f"dataset {item.name!r} has no numbers")
            yield f"{path}{name}", item
