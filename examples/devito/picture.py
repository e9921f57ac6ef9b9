"""Draw the true model, the model that was found, and the first gradient.

python picture.py result.npz fwi.png
"""

import sys

import numpy as np
from matplotlib.figure import Figure

result, output = sys.argv[1:]
fields = np.load(result)
speeds = {"true speed, km/s": fields["true"] ** -0.5, "after inversion": fields["found"] ** -0.5}
figure = Figure(figsize=(10, 3.2), layout="constrained")
*models, last = figure.subplots(1, 3)
for axes, (title, speed) in zip(models, speeds.items(), strict=True):
    image = axes.imshow(speed.T, vmin=1.95, vmax=2.55)
    axes.set(title=title, xticks=[], yticks=[])
    figure.colorbar(image, ax=axes)
most = abs(fields["gradient"]).max()
image = last.imshow(fields["gradient"].T, cmap="RdBu_r", vmin=-most, vmax=most)
last.set(title="first gradient", xticks=[], yticks=[])
figure.colorbar(image, ax=last)
figure.savefig(output, dpi=100)
print(f"written to {output}")
