"""`ckio run --guarded`: models that end a run where what they declare is wrong."""

from typing import TYPE_CHECKING, Any, Final

from ckio.errors import BadInput

if TYPE_CHECKING:
    from ckio.analysis.guarded import Guarded

TOLD: Final = (
    "guarded: steps are done more than once, to see whether they use or overwrite what is not"
    " declared; that takes a few times as long"
)


def guarded(name: str, model: Any, /) -> "Guarded":
    """Return a model that is held against what it declares of its steps.

    It raises RunFailed where a step does otherwise. Raises BadInput where the model declares
    nothing, or its steps cannot be watched.
    """
    from ckio.analysis.guarded import Guarded
    from ckio.model.arraymodel import ArrayModel

    if not isinstance(model, ArrayModel):
        raise BadInput(
            f"--guarded: model {name!r} is a {type(model).__name__} and no ArrayModel: its"
            " steps cannot be watched"
        )
    if model.variables is None:
        raise BadInput(
            f"--guarded: model {name!r} does not say what its steps use and overwrite, so there"
            f" is nothing to hold it to; see what `ckio analyze {name}` observes, and declare"
            " it as `flow`"
        )
    return Guarded(model, model.variables, digests=True)
