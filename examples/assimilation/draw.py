"""Draw the fields, the gradients or the misfits of the inversion: python draw.py field."""

import sys
from pathlib import Path

import h5py
import numpy as np
import truth
from matplotlib.figure import Figure

runs = []  # J, the start and dJ/d(start) of each evaluation
for path in sorted(Path("inversion").glob("*/gradient.h5")):
    with h5py.File(path) as file:
        runs.append([file[name][()] for name in ("functional", "control/zeta", "gradient/zeta")])
misfits = [float(j) for j, _, _ in runs]
best = misfits.index(min(misfits))
observed = np.load("observed.npy")


def panels(rows, fields):
    """Draw fields in two columns, each with colours that are symmetric about 0."""
    figure = Figure(figsize=(7.2, 3 * rows), layout="constrained")
    for axes, (title, field, most) in zip(figure.subplots(rows, 2).flat, fields, strict=True):
        image = axes.imshow(field, origin="lower", cmap="RdBu_r", vmin=-most, vmax=most)
        axes.set_title(title, fontsize=10)
        axes.set(xticks=[], yticks=[])
        figure.colorbar(image, ax=axes)
    return figure


def field():
    """Draw the start and the stream function at the end, true and found."""
    true, final = truth.run()[0], runs[best][1]
    modelled = truth.run(final)[1]
    before, after = (np.linalg.norm(it - true) / np.linalg.norm(true) for it in (runs[0][1], final))
    print(f"error of the start: {before:.0%} of it at first, {after:.0%} in the end")
    zeta, psi = np.abs(true).max() * 1e5, np.abs(observed).max() / 1e3
    fields = [
        ("true vorticity at the start, 1e-5/s", true * 1e5, zeta),
        (f"found after {best} evaluations, 1e-5/s", final * 1e5, zeta),
        ("observed after six days, 1e3 m²/s", observed / 1e3, psi),
        ("modelled after six days, 1e3 m²/s", modelled / 1e3, psi),
    ]
    return panels(2, fields)


def gradient():
    """Draw the gradient at the first guess and at the best evaluation."""
    first, last = runs[0][2] / 1e6, runs[best][2] / 1e6
    fields = [
        ("gradient at the first guess, 1e6 s", first, np.abs(first).max()),
        (f"gradient at evaluation {best}, 1e6 s", last, np.abs(last).max()),
    ]
    return panels(1, fields)


def misfit():
    """Draw J at each evaluation."""
    figure = Figure(figsize=(7.2, 3), layout="constrained")
    axes = figure.subplots()
    axes.semilogy(range(1, len(misfits)), misfits[1:], "o-", markersize=4)
    axes.axhline(observed.size / 2, color="grey", linestyle="--")
    axes.set(xlabel="evaluation", ylabel="J")
    return figure


(name,) = sys.argv[1:]
figure = {"field": field, "gradient": gradient, "misfit": misfit}[name]()
figure.savefig(f"inversion-{name}.png", dpi=90)
