"""Draw the second substance at the end, and the derivative of J with respect to its start.

python picture.py reaction.png
"""

import sys

from matplotlib.figure import Figure
from reaction import GrayScott

STEPS, GRID = 600, 64

(output,) = sys.argv[1:]
model = GrayScott(grid=GRID)
model.record(0, STEPS)
fields = {f"v after {STEPS} steps": model.field()}
model.reverse(0, STEPS)
fields["dJ/dv at the start"] = model.gradient["u"].reshape(GRID, GRID, 2)[..., 1]
figure = Figure(figsize=(8, 3.4), layout="constrained")
for axes, (title, field) in zip(figure.subplots(1, 2), fields.items(), strict=True):
    image = axes.imshow(field, origin="lower", cmap="viridis")
    axes.set(title=title, xticks=[], yticks=[])
    figure.colorbar(image, ax=axes)
figure.savefig(output, dpi=100)
print(f"written to {output}")
