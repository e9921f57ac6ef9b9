"""Draw the vorticity of the guess, the one that is observed at the end, and the gradient.

python picture.py result.npz kolmogorov.png
"""

import sys

import numpy as np
from matplotlib.figure import Figure

result, output = sys.argv[1:]
fields = np.load(result)
titles = {
    "guess": "vorticity of the guess",
    "observed": "observed vorticity at the end",
    "gradient": "curl of the gradient",
}
figure = Figure(figsize=(10, 3.2), layout="constrained")
for axes, (name, title) in zip(figure.subplots(1, 3), titles.items(), strict=True):
    most = abs(fields["gradient" if name == "gradient" else "observed"]).max()
    image = axes.imshow(fields[name].T, origin="lower", cmap="RdBu_r", vmin=-most, vmax=most)
    axes.set(title=title, xticks=[], yticks=[])
    figure.colorbar(image, ax=axes)
figure.savefig(output, dpi=100)
print(f"written to {output}")
