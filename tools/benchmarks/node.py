"""Containers that start at once on a node, as the ranks of a job do."""

import subprocess

from imports import installed
from measuring import in_turn, rows

# The numbers of https://github.com/eth-cscs/squashfs-mount/issues/12, which has the times of mounts.
NUMBERS = (1, 2, 4, 8, 16, 32, 64, 128)


def measure(folder):
    """Measure the time until the last of a number of containers has run a program."""
    module = installed(folder)["-file"]
    bare = {name: value for name, value in module.items() if not name.startswith(("SINGULARITY", "APPTAINER", "EBSIF"))}
    command = ["apptainer", "exec", module["SIF"], "/bin/true"]

    def start(number, environment):
        processes = [subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL) for _ in range(number)]
        assert [process.wait() for process in processes] == [0] * number

    found = []
    for number in NUMBERS:
        times = in_turn(
            {
                "apptainer exec": lambda number=number: start(number, bare),
                "ebsif": lambda number=number: start(number, module),
            },
            runs=5,
        )
        found += rows(
            f"containers at once: {number}",
            times,
            "ebsif",
            {"apptainer exec": None},
            {"apptainer exec": "mounts the image alone", "ebsif": "also mounts user software"},
        )
    return found
