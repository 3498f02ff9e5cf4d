"""Checks of container modules for ReFrame. Written by `ebsif reframe`, which replaces it; data.json has the modules."""

import json
import re
from pathlib import Path

import reframe as rfm
import reframe.utility.sanity as sn
from reframe.core.builtins import parameter, run_after, run_before, sanity_function
from reframe.core.exceptions import ConfigError

HERE = Path(__file__).parent
DATA = json.loads((HERE / "data.json").read_text())
MODULES = DATA["modules"]
WITH_PYTHON = sorted(name for name, one in MODULES.items() if one["python"])
# with either modules tool, also where the shell has no function `module`
LOAD = 'eval "$("${LMOD_CMD:-${MODULES_CMD}}" bash load %s)"'


class ModuleCheck(rfm.RunOnlyRegressionTest):
    """A check that runs something with a module."""

    valid_systems = ["*"]
    valid_prog_environs = ["builtin"]
    sourcesdir = str(HERE / "programs")
    time_limit = "15m"
    maintainers = ["ebsif reframe"]

    @run_after("setup")
    def prepare(self):
        """Load the modules; ask for the CPUs and the GPUs of each rank."""
        self.descr = type(self).__doc__
        extras = self.current_partition.extras
        if "tasks" not in extras:
            raise ConfigError(f"add -C {HERE}/settings.py, which describes the partitions of the site")
        self.num_cpus_per_task = extras["cpus"]
        if extras["gpus"] and DATA["site"]["scheduler"] == "slurm":
            self.job.options = [f"--gpus-per-node={extras['gpus']}"]
        self.prerun_cmds = [LOAD % name for name in DATA["site"]["modules"]]
        self.prerun_cmds += [
            LOAD % self.module,
            f'[ -n "$CONTAINERROOT" ] || {{ echo "wrong: {self.module} can\'t be loaded"; exit 1; }}',
            "export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK",
        ]
        # without it, the ranks that still work would wait for one that has failed
        slurm = ["--kill-on-bad-exit=1"] if DATA["site"]["scheduler"] == "slurm" else []
        self.job.launcher.options = [*DATA["site"]["launch_options"], *slurm]

    def in_container(self, *words):
        """Run a program in the container, as wrappers do."""
        self.executable = "$CONTAINERROOT/bin/start-shell"
        self.executable_opts = ["-c", """'exec "$0" "$@"'""", *words]

    def distributed(self, program):
        """Run a Python program on all ranks."""
        self.in_container("/runscripts/conda-python-distributed", "-c", f'"$(cat {program})"')

    def said(self, pattern, convert=str):
        """Return what a pattern finds in the output (list)."""
        return sn.evaluate(sn.extractall(pattern, self.stdout, 1, convert))

    @sanity_function
    def verdict(self):
        """Nothing is wrong; else the reasons are in ReFrame's report, with the last words of what was run."""
        reasons = self.said(r"^wrong: (.*)")
        if not reasons:
            reasons = list(self.problems())
            reasons += sn.evaluate(sn.extractall(r"^(?!srun: |INFO: ).*\S", self.stderr))[-1:] if reasons else []
        return sn.assert_false("; ".join(reasons), "{0}")


@rfm.simple_test
class Packages(ModuleCheck):
    """Python imports the packages, and they have the versions in the record of the installation."""

    module = parameter(WITH_PYTHON)

    @run_before("run")
    def command(self):
        """Give the record to the program of `ebsif doctor` in the container."""
        self.in_container(
            "python3",
            "-c",
            '"$(cat inside.py)"',
            "-",
            '"$(cat ebsif_imports.py)"',
            "<",
            "$CONTAINERROOT/share/ebsif/lock.json",
        )

    def problems(self):
        """The program names what it finds; without a GPU, packages that need one can't be imported."""
        results = self.said(r"^python\t(.*)", json.loads)
        if not results:
            yield "the packages were not compared"
            return
        yield from results[-1]["differences"] or []
        for problem in results[-1]["problems"]:
            if self.current_partition.extras["gpus"] or not problem["gpu"]:
                yield f"{', '.join(problem['names'])} can't be imported: {problem['error']}"


@rfm.simple_test
class Commands(ModuleCheck):
    """The module's commands and wrappers run in its image, and Python in its user software."""

    module = parameter(sorted(MODULES))

    @run_before("run")
    def command(self):
        """Start a shell, then the wrapper of Python."""
        one = MODULES[self.module]
        self.executable = "$CONTAINERROOT/bin/start-shell"
        self.executable_opts = ["-c", "'echo image: $SINGULARITY_NAME$APPTAINER_NAME'"]
        if one["wrapper"]:
            self.postrun_cmds = [f"{one['wrapper']} -c 'import sys; print(\"prefix:\", sys.prefix)'"]

    def problems(self):
        """The image is the module's, the interpreter that of user software."""
        one = MODULES[self.module]
        images, prefixes = self.said(r"^image: (.*)"), self.said(r"^prefix: (.*)")
        if not any(re.search(one["image"], image) for image in images):
            yield f"start-shell runs in {images}, not in {one['image']}"
        wanted = "/user-software/venv/" if one["venv"] else "/"
        if one["wrapper"] and not any(prefix.startswith(wanted) for prefix in prefixes):
            yield f"the command {one['wrapper']} runs the Python in {prefixes}, not in {wanted}"


@rfm.simple_test
class Ranks(ModuleCheck):
    """A full node: each rank has a number of its own and, with GPUs, a GPU of its own."""

    module = parameter(WITH_PYTHON)

    @run_before("run")
    def command(self):
        """Let each rank report."""
        self.distributed("rank.py")

    @run_after("setup")
    def size(self):
        """Ask for all tasks of a node."""
        self.num_tasks = self.num_tasks_per_node = self.current_partition.extras["tasks"]

    def problems(self):
        """Ranks and devices are all different."""
        ranks, devices = sorted(self.said(r"^rank (\d+) of \d+", int)), set(self.said(r"device (\S+)$"))
        if ranks != list(range(self.num_tasks)):
            yield f"the ranks are {ranks}, not 0 to {self.num_tasks - 1}"
        elif self.current_partition.extras["gpus"] and len(devices) < self.num_tasks:
            yield f"{self.num_tasks} ranks share {len(devices)} GPUs"


@rfm.simple_test
class AllReduce(ModuleCheck):
    """Two nodes: an all-reduce over all ranks; with torch and GPUs it also measures the bandwidth."""

    module = parameter(WITH_PYTHON)

    @run_after("setup")
    def size(self):
        """Ask for all tasks of two nodes."""
        self.num_tasks_per_node = self.current_partition.extras["tasks"]
        self.num_tasks = 2 * self.num_tasks_per_node

    @run_before("run")
    def command(self):
        """Add up a number of each rank."""
        self.distributed("allreduce.py")

    def problems(self):
        """All ranks have the same sum."""
        right = self.said(rf"^all-reduce of {self.num_tasks} ranks with (\S+): sum {self.num_tasks}\b")
        if len(right) != self.num_tasks:
            yield f"{len(right)} of {self.num_tasks} ranks have the right sum"

    @run_before("performance")
    def bandwidth(self):
        """Report the bandwidth, if GPUs communicated; what is good depends on the site (`reference`)."""
        if self.current_partition.extras["gpus"] and self.said(r" with (nccl): .* GB/s$"):
            self.perf_variables = {
                "bandwidth": sn.make_performance_function(
                    sn.min(sn.extractall(r", (\S+) GB/s$", self.stdout, 1, float)), "GB/s"
                )
            }
