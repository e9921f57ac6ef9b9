"""Draw where the functional of an ocean run depends on its start and on the wind.

python picture.py run gradient.png
"""

import sys

import h5py
import numpy as np
from matplotlib.figure import Figure

run, output = sys.argv[1:]
with h5py.File(f"{run}/gradient.h5") as file:
    panels = {
        "vorticity at the start, 1/s": file["control/zeta"][:],
        "dJ/d(vorticity), m²/s": file["gradient/zeta"][:],
        "dJ/d(curl of the wind), m²": file["gradient/Q"][:],
    }
figure = Figure(figsize=(11, 3.4), layout="constrained")
for axes, (title, field) in zip(figure.subplots(1, 3), panels.items(), strict=True):
    most = np.abs(field).max()
    image = axes.imshow(field, origin="lower", cmap="RdBu_r", vmin=-most, vmax=most)
    axes.set(title=title, xticks=[], yticks=[])
    figure.colorbar(image, ax=axes)
figure.savefig(output)
print(f"written to {output}")
