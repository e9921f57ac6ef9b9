"""Draw the wave at the end, and the derivative of J with respect to c2, on the plane b = 0.

python picture.py wave3d.png
"""

import sys

import numpy as np
from matplotlib.figure import Figure
from wave3d import start, step, wave

GRID, STEPS = 64, 110

(output,) = sys.argv[1:]
x, c2 = start(GRID)
for i in range(STEPS):
    x = step(x, c2, i)
model = wave(GRID, STEPS)
model.record(0, STEPS)
model.reverse(0, STEPS)
cubes = {f"u after {STEPS} steps": x["u"], "dJ/dc2": model.gradient["params"]}
figure = Figure(figsize=(8, 3.4), layout="constrained")
for axes, (title, cube) in zip(figure.subplots(1, 2), cubes.items(), strict=True):
    plane = np.asarray(cube)[:, GRID // 2, :].T
    most = np.quantile(np.abs(plane), 0.99)  # the source is much stronger than all else
    image = axes.imshow(plane, origin="lower", cmap="RdBu_r", vmin=-most, vmax=most)
    axes.set(title=title, xlabel="a", ylabel="c", xticks=[], yticks=[])
    figure.colorbar(image, ax=axes)
figure.savefig(output, dpi=100)
print(f"written to {output}")
