"""
The launchers of ``ebsif job``, one small class each: what the scheduler starts on the nodes of a job.

A launcher decides what stands between the scheduler and the program. `conda-python-distributed` runs it in the
container, and has set the environment of the rank.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ebsif.errors import EbsifError
from ebsif.servers import RAY_WITH_TOKENS, Server, ray_is_open

# Options of accelerate that choose how it distributes a program.
ACCELERATE_KINDS = (
    "--config_file",
    "--cpu",
    "--multi_gpu",
    "--tpu",
    "--use_deepspeed",
    "--use_fsdp",
    "--use_megatron_lm",
)


@dataclass(frozen=True)
class Share:
    """What a job has: nodes, and on each of them tasks, their CPUs and their masks, and GPUs."""

    nodes: int
    tasks: int
    cpus_per_task: int
    gpus: int
    masks: Sequence[str] = ()
    # whether nobody else may use the nodes, or else the person accepts what others can do
    without_tokens: bool = False


class Launcher:
    """A launcher; by default, the scheduler starts each rank itself."""

    name: str
    # whether the scheduler starts it once on each node, and it does the rest there
    once_per_node = False
    # whether the program has ranks, each of which may have a GPU
    has_ranks = True
    # arguments of python that start it, the run script that it needs, and the packages
    start: tuple[str, ...] = ()
    run_script = "job.bash"
    packages: tuple[str, ...] = ()

    def comment(self, share: Share) -> str:
        """Return what the scheduler starts, for a comment."""
        return "One rank per GPU" if share.gpus else "One rank per task"

    def settings(self, share: Share) -> list[tuple[str, list[str]]]:
        """Return commands of the batch script that prepare it, each with its reason."""
        return []

    def options(self, words: list[str], share: Share) -> list[str]:
        """Return its own options for a program and its arguments; raise EbsifError if it can't start them."""
        return []

    def program(self, words: list[str]) -> list[str]:
        """Return the program and its arguments as this launcher takes them; raise EbsifError if it doesn't."""
        return words

    def open_because(self, versions: Mapping[str, str]) -> str:
        """Return why others on the nodes could use what it starts with these packages; empty if they can't."""
        return ""


class Native(Launcher):
    """The scheduler starts each rank."""

    name = "native"


class Torchrun(Launcher):
    """torchrun, or a program that calls its functions: started once on each node, it starts the ranks there."""

    name = "torchrun"
    once_per_node = True
    start = ("-m", "torch.distributed.run")

    def comment(self, share: Share) -> str:
        """Return what the scheduler starts, for a comment."""
        return f"One {self.name} per node starts the ranks"

    def settings(self, share: Share) -> list[tuple[str, list[str]]]:
        """Return commands of the batch script that prepare it, each with its reason."""
        if share.tasks == 1:
            return []
        what = "these CPUs, which are closest to their GPUs" if share.masks else "one NUMA domain each"
        value = ",".join(share.masks) or "numa"
        return [(f"The ranks of {self.name} bind themselves to {what}.", ["export", f"EBSIF_CPU_BIND={value}"])]

    def options(self, words: list[str], share: Share) -> list[str]:
        """Return its own options for a program and its arguments."""
        return [f"--nproc-per-node={share.tasks}"]

    def program(self, words: list[str]) -> list[str]:
        """Return the program and its arguments; raise EbsifError if there are options of python before it."""
        if words[0] == "-u":
            # the ranks run unbuffered anyway
            words = words[1:]
        if not words or (words[0].startswith("-") and words[0] != "-m" and not words[0].startswith("--")):
            raise EbsifError(f"{self.name} takes a program, not options of python: {' '.join(words)}")
        return words


class Accelerate(Torchrun):
    """The same with Hugging Face's accelerate."""

    name = "accelerate"
    packages = (name,)
    start = ("-m", "accelerate.commands.launch")

    def settings(self, share: Share) -> list[tuple[str, list[str]]]:
        """Return commands of the batch script that prepare it, each with its reason."""
        more = [
            (
                "Without it, each rank would train alone where there are no GPUs.",
                ["export", "ACCELERATE_USE_CPU=true"],
            )
        ]
        return ([] if share.gpus else more) + super().settings(share)

    def options(self, words: list[str], share: Share) -> list[str]:
        """Return its own options for a program and its arguments."""
        ranks = share.nodes * share.tasks
        # without GPUs, or with one on each node, it would not start several ranks by itself; a single one it refuses
        named = any(word.split("=")[0] in ACCELERATE_KINDS for word in words)
        kind = ["--multi_gpu"] if ranks > 1 and not named else []
        return [*kind, f"--num_machines={share.nodes}", f"--num_processes={ranks}"]


class DeepSpeed(Launcher):
    """The scheduler starts each rank, with the variables and devices that DeepSpeed expects."""

    name = "deepspeed"
    packages = (name,)

    def settings(self, share: Share) -> list[tuple[str, list[str]]]:
        """Return commands of the batch script that prepare it, each with its reason."""
        reason = "DeepSpeed chooses the GPU by LOCAL_RANK, which is an index among all GPUs of the node."
        return [(reason, ["export", "EBSIF_GPU_VISIBILITY=all"])]


class Ray(Launcher):
    """Ray on all nodes of the job, for a program that runs on the first one."""

    name = "ray"
    packages = (name,)
    once_per_node = True
    has_ranks = False
    run_script = "start-ray.py"
    start = (f"/runscripts/{run_script}",)

    def comment(self, share: Share) -> str:
        """Return what the scheduler starts, for a comment."""
        return "One node of Ray per node; the program runs on the first one when all have joined"

    def settings(self, share: Share) -> list[tuple[str, list[str]]]:
        """Return commands of the batch script that prepare it, each with its reason."""
        return [("Who has this secret can use Ray: only the processes of this job.", ["job_secret", "RAY_AUTH_TOKEN"])]

    def options(self, words: list[str], share: Share) -> list[str]:
        """Return its own options: Ray would count CPUs and GPUs of the whole node."""
        count = [f"--cpus={share.cpus_per_task * share.tasks}", f"--gpus={share.gpus}"]
        tokens = [f"--tokens-since={RAY_WITH_TOKENS}", *(["--without-tokens"] if share.without_tokens else [])]
        return [*count, *tokens, "--"]

    def open_because(self, versions: Mapping[str, str]) -> str:
        """Return why others on the nodes could use this Ray; empty if they can't, or its version isn't known."""
        return ray_is_open(versions)


class WithServer(Launcher):
    """A server and a program that uses it, both on the first node; Ray may run on all nodes below them."""

    once_per_node = True
    has_ranks = False
    run_script = "start-server.py"

    def __init__(self, below: Launcher, server: Server, seconds: int):
        """Start this server, which has to answer within some seconds, by another launcher."""
        self.below, self.server, self.seconds = below, server, seconds
        self.name = below.name
        self.start = below.start or (f"/runscripts/{self.run_script}",)
        self.packages = tuple(dict.fromkeys(filter(None, (*below.packages, server.package))))

    def comment(self, share: Share) -> str:
        """Return what the scheduler starts, for a comment."""
        if self.below.start:
            return "Ray on all nodes; the program starts on the first one when its server answers"
        return "The program starts when its server answers"

    def settings(self, share: Share) -> list[tuple[str, list[str]]]:
        """Return commands of the batch script that prepare it, each with its reason."""
        reason = "Who has this key can use the server: the processes of this job, and its person by `ebsif connect`."
        return [*self.below.settings(share), (reason, ["job_server"])]

    def options(self, words: list[str], share: Share) -> list[str]:
        """Return its own options for a program and its arguments."""
        key = [f"--key-variable={self.server.key_variable}"] if self.server.key_variable else []
        own = [f"--ready={self.server.ready}", f"--within={self.seconds}", *key, "--", *self.server.words]
        if self.below.start:
            own = [*self.below.options(words, share), f"/runscripts/{self.run_script}", *own]
        return [*own, "--"] if words else own

    def open_because(self, versions: Mapping[str, str]) -> str:
        """Return why others on the nodes could use the server, or what is below it; empty if they can't."""
        return self.below.open_because(versions) or self.server.is_open


LAUNCHERS = {one.name: one for one in (Native(), Torchrun(), Accelerate(), DeepSpeed(), Ray())}
