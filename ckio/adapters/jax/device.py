"""Arrays of JAX on a CUDA device, as buffers that levels copy without the host."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ckio.actions import Buffers, Field
from ckio.adapters.cuda import CudaSpace, DeviceView, stream_of
from ckio.adapters.jax.blocks import Leaves, plain
from ckio.errors import BadInput

wait: Any = jax.block_until_ready
"""Wait until arrays are computed: levels do not wait, and the time of an action is that of its
computation."""


def space_of(leaves: Leaves, /) -> CudaSpace | None:
    """Return the memory of the one CUDA device that has all arrays, or None.

    It is also None if CuPy is not installed; then checkpoints are copied through the host.
    """
    devices = {device for leaf in leaves for device in leaf.devices()}
    if len(devices) != 1:
        return None
    (device,) = devices
    if device.platform not in ("gpu", "cuda"):
        return None
    try:
        stream_of(device.local_hardware_id or 0)
    except BadInput:
        return None
    return CudaSpace(device.local_hardware_id or 0)


def views_of(leaves: Sequence[Any], /) -> Buffers:
    """Return the bytes of arrays that are complete. The arrays live as long as the views."""
    arrays = plain(leaves)
    views: Any = [DeviceView(it.unsafe_buffer_pointer(), it.nbytes, it) for it in arrays]
    return views  # type: ignore[no-any-return]


def uninitialized(field: Field, /) -> Any:
    """Return a new array whose memory a level may fill before it is used."""
    return wait(jnp.empty(field.shape, np.dtype(field.dtype)))


def array_at(view: Any, field: Field, space: CudaSpace, /) -> Any:
    """Return the array whose bytes a view is, or a new array with a copy of them."""
    owner = view.owner
    if isinstance(owner, jax.Array) and owner.unsafe_buffer_pointer() == view.address:
        return owner
    array = uninitialized(field)
    (target,) = views_of([array])
    stream_of(space.device).copy([(target, view)])
    return array
