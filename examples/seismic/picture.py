"""Draw the speeds of the first guess and of the best evaluation, and how the misfit fell.

python picture.py inversion inversion.png
"""

import sys
from pathlib import Path

import h5py
from matplotlib.figure import Figure

inversion, output = sys.argv[1:]
misfits, speeds = [], []
for path in sorted(Path(inversion).glob("evaluation-*/gradient.h5")):
    with h5py.File(path) as file:
        misfits.append(float(file["functional"][()]))
        speeds.append(file["control/m"][:] ** -0.5)
best = misfits.index(min(misfits))
figure = Figure(figsize=(11, 3.4), layout="constrained")
guess, improved, curve = figure.subplots(1, 3)
for axes, title, number in ((guess, "first guess", 0), (improved, f"evaluation {best}", best)):
    image = axes.imshow(speeds[number], vmin=speeds[0].min(), vmax=speeds[0].max())
    axes.set(title=f"speed, m/s: {title}", xticks=[], yticks=[])
    figure.colorbar(image, ax=axes)
curve.semilogy(misfits, "o-")
curve.set(title="misfit, Pa² s", xlabel="evaluation")
figure.savefig(output)
print(f"written to {output}")
