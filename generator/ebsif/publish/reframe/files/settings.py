"""ReFrame's configuration for the site in data.json. Written by `ebsif reframe`, which replaces it."""

import json
import os
import shutil
import subprocess
from pathlib import Path

SITE = json.loads(Path(__file__).with_name("data.json").read_text())["site"]


def scheduler():
    """Return ReFrame's name of the scheduler: without accounting, only the queue knows Slurm's jobs."""
    sacct = shutil.which("sacct")
    if SITE["scheduler"] != "slurm":
        return SITE["scheduler"]
    try:
        # it may wait for a database that is down
        asked = sacct and subprocess.run([sacct, "-n", "-X", "-j", "1"], capture_output=True, check=False, timeout=60)
    except subprocess.TimeoutExpired:
        asked = None
    return "slurm" if asked and asked.returncode == 0 else "squeue"


def access(partition):
    """Return the options that every job needs, with the account in the caller's environment."""
    accounts = [os.environ[name] for name in SITE["account_variables"] if os.environ.get(name)]
    option = {"slurm": "--account={}", "pbs": "-A {}"}[SITE["scheduler"]]
    return [*partition["access"], *(option.format(one) for one in accounts[:1])]


site_configuration = {
    "systems": [
        {
            "name": SITE["name"],
            "descr": SITE["description"],
            "hostnames": [".*"],
            # the checks load modules themselves
            "modules_system": "nomod",
            "partitions": [
                {
                    "name": one["name"],
                    "scheduler": scheduler(),
                    "launcher": SITE["launcher"],
                    "access": access(one),
                    "environs": ["builtin"],
                    "max_jobs": 8,
                    "extras": {"tasks": one["tasks"], "cpus": one["cpus"], "gpus": one["gpus"]},
                }
                for one in SITE["partitions"]
            ],
        }
    ],
    # so that the modules tool is there in jobs that don't get the caller's environment
    "general": [{"use_login_shell": True}],
}
