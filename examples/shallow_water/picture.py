"""Draw where the functional of a shallow-water run depends on the sea floor and the surface.

python picture.py run gradient.png
"""

import sys

import h5py
from matplotlib.figure import Figure

run, output = sys.argv[1:]
with h5py.File(f"{run}/gradient.h5") as file:
    panels = {
        "depth at rest, m": file["control/depth"][:],
        "dJ/d(depth), m²/s²": file["gradient/depth"][:],
        "dJ/d(thickness at the start), m²/s²": file["gradient/h"][:],
    }
figure = Figure(figsize=(11, 3.4), layout="constrained")
for axes, (title, field) in zip(figure.subplots(1, 3), panels.items(), strict=True):
    axes.set(title=title, xticks=[], yticks=[])
    figure.colorbar(axes.imshow(field, origin="lower"), ax=axes)
figure.savefig(output)
print(f"written to {output}")
