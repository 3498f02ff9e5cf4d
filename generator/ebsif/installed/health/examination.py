"""Run the checks of this node once, and those of the modules in parallel, each stage only if the one before passed."""

import contextlib
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Optional

from ebsif import processes
from ebsif.catalog.site import Site
from ebsif.eb import framework
from ebsif.errors import EbsifError
from ebsif.installed import places
from ebsif.installed.health import files, hardware, hostfiles, machine, mpilibrary, running
from ebsif.installed.health.machine import Machine
from ebsif.installed.health.subject import Subject
from ebsif.installed.places import Installation
from ebsif.report import output
from ebsif.report.findings import ERROR, NOTE, Finding
from ebsif.report.steps import Now, Steps

# Each stage needs what the earlier ones have checked.
ON_DISK: Sequence[Sequence[Callable]] = (
    (files.state,),
    (files.module_file,),
    (files.binds, hostfiles.there, hostfiles.needs, files.wheels),
)
IN_CONTAINER: Sequence[Sequence[Callable]] = (
    (running.load,),
    (running.start,),
    (
        running.imports,
        running.replaced,
        running.servers,
        hostfiles.unloadable,
        hardware.driver,
        hardware.provider,
        hardware.plugin,
        hardware.mpi,
        mpilibrary.examine,
        hardware.mpi_backend,
    ),
)
WORKERS = 8  # at most: each is a container, which may import torch


def examine(
    installations: Sequence[Installation],
    site: Optional[Site] = None,
    verify: bool = False,
    node: Optional[Machine] = None,
) -> list[Finding]:
    """Return the findings on this node and on modules; `verify` compares the SHA256 of images and user software."""
    node = node or Machine()
    with contextlib.suppress(framework.EbError):
        # before there are threads, which read easyconfigs of modules with central images
        framework.session()
    found = list(machine.examine(node, recorded_runtimes(installations)))
    stages = ON_DISK
    if any(one.level == ERROR for one in found):
        found.append(Finding(NOTE, "modules", "modules were not checked: fix the errors of this node first"))
    else:
        stages = (*ON_DISK, *IN_CONTAINER)
    found += hostfiles.new_builds(node, installations)
    subjects = [Subject(one, node, site, verify) for one in installations]
    done: list[Subject] = []

    def check(one: Subject) -> list[Finding]:
        findings = run(one, stages)
        done.append(one)
        return findings

    with Steps() as steps:
        steps.begin(
            "checking modules",
            important=False,
            watch=lambda: Now(f"{len(done)} of {len(subjects)}", len(done), len(subjects)),
        )
        for findings in processes.in_threads(check, subjects, min(WORKERS, len(os.sched_getaffinity(0)))):
            found += findings
    return found


def recorded_runtimes(installations: Iterable[Installation]) -> set[str]:
    """Return what the runtimes called themselves with which modules were installed."""
    return {one.record.versions.get("runtime", "") for one in installations if not one.damage}


def run(one: Subject, stages: Sequence[Sequence[Callable]]) -> list[Finding]:
    """Return the findings of the checks of one module, up to the first stage with an error."""
    # eb hasn't written everything yet
    if wait := places.in_use(one.module, one.installation.root):
        return [one.warning(wait)]
    found: list[Finding] = []
    for stage in stages:
        for check in stage:
            try:
                found += check(one)
            except (EbsifError, OSError) as error:
                found.append(one.error(output.escape(error)))
        if any(finding.level == ERROR for finding in found):
            break
    return found
