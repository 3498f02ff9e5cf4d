"""What people type for schedulers, and what it is called in `ebsif job`."""

import shlex
from collections.abc import Iterable, Iterator

# Options of Slurm, PBS and Flux that `ebsif job` has by another name.
OPTIONS = {
    "-t": "--time",
    "--time-limit": "--time",
    "--walltime": "--time",
    "-p": "--partition",
    "--queue": "--partition",
    "-A": "--account",
    "-P": "--account",
    "--project": "--account",
    "-J": "--name",
    "--job-name": "--name",
    "-c": "--cpus-per-task",
    "--cores-per-task": "--cpus-per-task",
    "-n": "--nodes and --tasks-per-node",
    "--ntasks": "--nodes and --tasks-per-node",
    "--np": "--nodes and --tasks-per-node",
    "--ntasks-per-node": "--tasks-per-node",
    "--nproc-per-node": "--tasks-per-node",
    "-G": "--gpus-per-node",
    "--gpus": "--gpus-per-node",
    "--gres": "--gpus-per-node",
    "--gpus-per-task": "--gpus-per-node",
    "--mem": "--memory",
    "-l": "--nodes, --tasks-per-node, --gpus-per-node, --memory and --time",
    "--select": "--nodes, --tasks-per-node and --gpus-per-node",
    "--setattr": "--scheduler",
}
# Options that go to the scheduler as they are, the short ones of sbatch by their long names.
LETTERS = {
    "-a": "--array",
    "-C": "--constraint",
    "-d": "--dependency",
    "-D": "--chdir",
    "-e": "--error",
    "-L": "--licenses",
    "-w": "--nodelist",
    "-x": "--exclude",
}
PASSED_ON = {
    *LETTERS.values(),
    "--begin",
    "--comment",
    "--exclusive",
    "--hint",
    "--mail-type",
    "--mail-user",
    "--mem-per-cpu",
    "--mem-per-gpu",
    "--nice",
    "--qos",
    "--reservation",
    "--switches",
    "--tmp",
}


def advice(words: Iterable[str]) -> str:
    """Return what to type instead of options of a scheduler among words; empty if there is none."""
    return "; ".join(dict.fromkeys(pieces(list(words))))


def pieces(words: list[str]) -> Iterator[str]:
    """Yield what to type instead of each option of a scheduler."""
    for number, word in enumerate(words):
        option, _, value = word.partition("=")
        if option[:1] == "-" and option[1:2] != "-":
            # the value may be part of the word: -t10
            option, value = word[:2], word[2:].removeprefix("=")
        following = words[number + 1] if number + 1 < len(words) and not words[number + 1].startswith("-") else ""
        if option in OPTIONS:
            yield f"for {option}, use {OPTIONS[option]}"
        elif LETTERS.get(option, option) in PASSED_ON:
            whole = "=".join(filter(None, (LETTERS.get(option, option), value or following)))
            yield f"for {option}, use --scheduler={shlex.quote(whole)}"
