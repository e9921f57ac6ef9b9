"""Draw the true start, the one that was found, and the gradient of the first guess.

python picture.py result.npz heat.png
"""

import sys

import matplotlib.pyplot as plt
import numpy as np


def main(result: str, picture: str) -> None:
    """Draw the fields of a result."""
    fields = np.load(result)
    x, y = fields["points"].T
    figure, axes = plt.subplots(1, 3, figsize=(10, 3.2), layout="constrained")
    hottest = fields["true"].max()
    titles = {"true": "true start", "found": "start that was found", "gradient": "first gradient"}
    for axis, (name, title) in zip(axes, titles.items(), strict=True):
        if name == "gradient":
            extent = abs(fields[name]).max()
            options = {"cmap": "RdBu_r", "levels": np.linspace(-extent, extent, 21)}
        else:
            options = {"cmap": "inferno", "levels": np.linspace(-0.05, hottest, 21)}
        drawn = axis.tricontourf(x, y, fields[name], extend="both", **options)
        axis.set_title(title)
        axis.set_aspect("equal")
        figure.colorbar(drawn, ax=axis, format="%.2g")
    figure.savefig(picture, dpi=100)
    print(f"written to {picture}")


if __name__ == "__main__":
    main(*sys.argv[1:])
