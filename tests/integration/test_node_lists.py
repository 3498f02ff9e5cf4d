"""The first host of a node list, as the scheduler understands it."""

import os
import subprocess
from random import Random

import pytest
from support import CONTAINER_FILES, attempt


def ranges(random):
    """Return the text in brackets: numbers and ranges, with padding."""
    parts = []
    for _ in range(random.randint(1, 3)):
        number = random.randint(0, 130)
        first = str(number).zfill(random.randint(0, 4))
        last = str(number + random.randint(0, 20)).zfill(len(first))
        parts.append(random.choice([first, f"{first}-{last}"]))
    return f"[{','.join(parts)}]"


def node_list(random):
    """Return a legal node list: several names, several brackets in a name, hyphens, dots, text after a number."""
    names = []
    for _ in range(random.randint(1, 4)):
        name = random.choice(["nid", "n", "rack", "x1000c0s", "gpu-a", "a.b", "login"])
        for _ in range(random.randint(0, 2)):
            name += ranges(random) + random.choice(["", "b", "node", "-x", "n"])
        if "[" not in name:
            name += random.choice(["", "1", "007", "-ib", "3-ib"])
        # nothing may follow the last bracket
        names.append(name[: name.rindex("]") + 1] if "]" in name else name)
    return ",".join(names)


GET_MASTER = 'source "$1"; shift; for list; do first_host "$list" && echo "$host" || echo "refused"; done'
# One call for many lists, separated by a name that is in no list.
SCONTROL = """
for lists; do
    scontrol show hostnames "between,$lists" || echo refused
done
"""


def first_hosts(script, *arguments, **environment):
    """Return the output of a bash loop for each argument."""
    command = ["bash", "-c", script, "bash", *arguments]
    variables = {**os.environ, **environment}
    result = subprocess.run(command, env=variables, capture_output=True, text=True, check=True, timeout=300)
    return result.stdout.splitlines()


def test_get_master_agrees_with_slurm(cluster):
    """S002-62: for thousands of legal lists, the first host is the one that `scontrol show hostnames` prints first."""
    # always the same lists, so that a failure can be reproduced
    random = Random(20261121)
    lists = sorted({node_list(random) for _ in range(2600)})
    assert len(lists) > 2000
    many = [",between,".join(lists[start : start + 100]) for start in range(0, len(lists), 100)]
    hosts = first_hosts(SCONTROL, *many, **cluster.environment)
    judge = [host for before, host in zip(hosts, hosts[1:]) if before == "between"]
    ours = first_hosts(GET_MASTER, str(CONTAINER_FILES / "runscripts/get-master"), *lists)
    differing = [(one, theirs, own) for one, theirs, own in zip(lists, judge, ours) if theirs != own]
    assert not differing
    assert len(judge) == len(ours) == len(lists)
    assert "refused" not in hosts


# closed, counted or nested wrongly; and what isn't a name
BRACKETS = ["n[", "n[1", "n1]", "n[]", "n[1-]", "n[-1]", "n[1,,2]", "n[1,]", "n[a-b]", "n[[1-2]]", "n[1-2-3]"]
NAMES = ["n[1-2]]", "", ",", "n[1-2]-ib", "a b", "$(id)", "a;b", ".n1", "n1,-n2"]


@pytest.mark.parametrize("wrong", [*BRACKETS, *NAMES])
def test_a_malformed_list_is_an_error(wrong):
    """S002-62, S002-65: empty or malformed lists: status 1, an error, and no host."""
    script = CONTAINER_FILES / "runscripts/get-master"
    result = attempt([script, wrong])
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.startswith("get-master: ")
    assert f"not a node list in Slurm's format: '{wrong}'" in result.stderr


@pytest.mark.parametrize("wrong", ["n[3-1]", "n-3-1[1-2,5-4]", "a-5-2,b[010-9]", "n[1-2]b[9-3]"])
def test_a_range_that_ends_before_it_begins(wrong, cluster):
    """S002-62: Slurm refuses it, too."""
    assert first_hosts(SCONTROL, wrong, **cluster.environment) in ([], ["refused"])
    script = CONTAINER_FILES / "runscripts/get-master"
    result = attempt([script, wrong])
    assert (result.returncode, result.stdout) == (1, "")
    assert "ends before it begins" in result.stderr


def test_get_master_reads_a_host_file(tmp_path):
    """S002-62: the first host of $PBS_NODEFILE or of a host file; empty, missing and odd ones are errors."""
    script = CONTAINER_FILES / "runscripts/get-master"

    def get(text, *arguments, **variables):
        path = tmp_path / "hosts"
        path.write_text(text)
        result = attempt([script, *arguments], env={"PATH": os.environ["PATH"], **variables})
        return result.stdout.strip() or result.stderr.strip()

    file = str(tmp_path / "hosts")
    assert get("# nodes\n\n  dec0001.hsn slots=4\ndec0002\n", "--hostfile", file) == "dec0001.hsn"
    # as MPICH reads it, with the number of ranks, and as Windows writes it
    assert get("\r\ndec0004:8\r\ndec0005:8\r\n", "--hostfile", file) == "dec0004"
    for host in ("10.0.0.1", "fe80::1"):
        assert get(f"{host}\n", "--hostfile", file) == host
    odd = get("[all]\na\n", PBS_NODEFILE=file)
    assert f"the host file {file} has a line that doesn't begin with a host: '[all]'" in odd
    assert get("dec0003", PBS_NODEFILE=file) == "dec0003"
    assert f"the host file {file} has no hosts" in get("\n# x\n", "--hostfile", file)
    assert "can't read the host file" in get("", "--hostfile", file + ".not")
    assert "containers see it if its directory is bound" in get("", PBS_NODEFILE=file + ".not")
    assert get("x", SLURM_STEP_ID="0", SLURM_STEP_NODELIST="n[7-9]", SLURM_JOB_NODELIST="n[1-9]") == "n7"
    assert get("x", SLURM_JOB_NODELIST="n[1-9]", launcher="mine", knows_hosts="x") == "n1"
    assert "no scheduler tells which nodes" in get("x")
    for arguments in (("a", "b", "c"), ("--hostfile",), ("-x",)):
        assert "usage: get-master" in get("x", *arguments), f"W6: {arguments}"
