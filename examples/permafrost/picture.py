"""Draw where the functional of a permafrost run depends on temperature and conductivity.

python picture.py run gradient.png
"""

import sys

import h5py
from matplotlib.figure import Figure

run, output = sys.argv[1:]
with h5py.File(f"{run}/gradient.h5") as file:
    panels = {
        "temperature at the start, °C": file["control/T"][:],
        "dJ/d(temperature), K": file["gradient/T"][:],
        "dJ/d(vertical conductivity), K³ m/W": file["gradient/K"][0],
    }
figure = Figure(figsize=(11, 3.4), layout="constrained")
for axes, (title, field) in zip(figure.subplots(1, 3), panels.items(), strict=True):
    axes.set(title=title, xticks=[], yticks=[])
    figure.colorbar(axes.imshow(field), ax=axes)
figure.savefig(output)
print(f"written to {output}")
