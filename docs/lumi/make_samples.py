"""Write samples as many small files, as data sets often come: make_samples.py DIRECTORY."""

import random
import sys
from pathlib import Path

folder = Path(sys.argv[1])
folder.mkdir(parents=True)
for number in range(64):
    lines = []
    for _ in range(16):
        inputs = [random.gauss(0, 1) for _ in range(8)]
        target = sum(weight * value for weight, value in enumerate(inputs))
        lines.append(",".join(f"{value:.6f}" for value in [*inputs, target]))
    (folder / f"{number:02d}.csv").write_text("\n".join(lines) + "\n")
