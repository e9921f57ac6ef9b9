"""Draw u after the last step, and the gradient with respect to u at the start.

python picture.py run gradient.png
"""

import sys

import h5py
import numpy as np
from matplotlib.figure import Figure
from solver import solver

run, output = sys.argv[1:]
with h5py.File(f"{run}/gradient.h5") as file:
    gradient, k, steps = file["gradient/u"][:], file["control/k"][()], file.attrs["steps"]
ny, nx = gradient.shape
model = solver(ny=ny, nx=nx, k=k)
model.advance(0, steps)
u = model.control["u"]  # the memory in which the library computes
figure = Figure(figsize=(8, 2.8), layout="constrained")
panels = {f"u after {steps} steps": u, "dJ/du at the start": gradient}
for axes, (title, field) in zip(figure.subplots(1, 2), panels.items(), strict=True):
    most = np.abs(field).max()
    image = axes.imshow(field, interpolation="nearest", cmap="RdBu_r", vmin=-most, vmax=most)
    axes.set(title=title, xticks=[], yticks=[])
    figure.colorbar(image, ax=axes)
figure.savefig(output, dpi=100)
print(f"written to {output}")
