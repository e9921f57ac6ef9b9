"""Draw the velocity of Burgers' equation and the surface of the basin, with their gradients.

python picture.py burgers.npz basin.npz firedrake.png
"""

import sys

import matplotlib.pyplot as plt
import numpy as np


def main(burgers: str, basin: str, picture: str) -> None:
    """Draw the fields of two results."""
    flow, wave = np.load(burgers), np.load(basin)
    panels = [
        ("speed at the start", flow, np.linalg.norm(flow["start"], axis=1)),
        ("speed at the end", flow, np.linalg.norm(flow["end"], axis=1)),
        ("gradient, x component", flow, flow["gradient"][:, 0]),
        ("surface at the end", wave, wave["surface"]),
        ("gradient, depth", wave, wave["gradient"]),
    ]
    figure, axes = plt.subplots(1, len(panels), figsize=(15, 2.7), layout="constrained")
    for axis, (title, fields, values) in zip(axes, panels, strict=True):
        extent = abs(values).max()
        if title.startswith("speed"):
            options = {"cmap": "viridis", "levels": np.linspace(0, extent, 21)}
        else:
            options = {"cmap": "RdBu_r", "levels": np.linspace(-extent, extent, 21)}
        drawn = axis.tricontourf(*fields["points"].T, values, **options)
        axis.set_title(title, fontsize=10)
        axis.set_aspect("equal")
        figure.colorbar(drawn, ax=axis, format="%.2g", shrink=0.75)
    figure.savefig(picture, dpi=100)
    print(f"written to {picture}")


if __name__ == "__main__":
    main(*sys.argv[1:])
