"""Write an interactive app for Open OnDemand that starts JupyterLab in a container."""

import json
import math
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any, Optional

from easybuild.easyblocks.generic.container.values import shown_module

from ebsif import files, filling
from ebsif.catalog.fieldtypes import seconds_in
from ebsif.catalog.site import Partition, Site
from ebsif.errors import EbsifError
from ebsif.installed import current, interpreter, places
from ebsif.installed.places import Installation
from ebsif.report import output
from ebsif.templating import environment

if TYPE_CHECKING:
    from jinja2 import Environment

MEGABYTES = {"": 1, "M": 1, "K": 1 / 1024, "G": 1024, "T": 1024 * 1024}


def write_app(
    installation: Installation, site: Site, cluster: Optional[str], place: Path, overwrite: bool = False
) -> None:
    """Write an interactive app; raise EbsifError if module or scheduler don't support it."""
    check_jupyterlab(installation)
    if not installation.module.isprintable():
        # a line of its own in a script
        raise EbsifError(f"{output.escape(installation.module)} can't be used: its name has a control character")
    kind = site.scheduler.kind
    templates = our_templates()
    if f"schedulers/{kind}.rb.j2" not in templates.list_templates():
        raise EbsifError(f"Open OnDemand has no support for the scheduler of {site.name}, {kind}")
    values = {
        **form_values(site),
        "cluster": cluster or site.name,
        "kind": kind,
        "module": installation.module,
        "native_options": [word for line in site.scheduler.options for word in shlex.split(line)],
        "modules": site.scheduler.modules,
        "interpreter": str(interpreter.of(installation)),
        "title": f"JupyterLab ({shown_module(installation.module)})",
    }
    names = templates.list_templates(filter_func=lambda name: name.startswith("app/"))
    texts = {name: templates.get_template(name).render(values) for name in names}
    with filling.filled(place, "ood", overwrite) as made:
        for name, text in texts.items():
            path = made / name.removeprefix("app/").removesuffix(".j2")
            files.replace(path, text)
            if path.name.startswith("script.sh"):
                # Open OnDemand keeps the mode of the script that it starts
                files.make_executable(path)


def form_values(site: Site) -> dict[str, Any]:
    """Return what form and submission need to know of a site."""
    scheduler = site.scheduler
    default, chosen = default_partition(site)
    nodes = {name: node_data(one) for name, one in scheduler.partitions.items()} or {"": {"exclusive": False}}
    groups = scheduler.account.groups
    form = ["account"] if groups else ["bc_account"] if scheduler.account.required else []
    form += ["bc_queue"] if scheduler.partitions else []
    form += [
        "cpus",
        *(["gpus"] if any(one.gpus for one in scheduler.partitions.values()) else []),
        "bc_num_hours",
        "directory",
        "user_software",
    ]
    return {
        "groups": groups,
        "required": scheduler.account.required,
        "nodes": nodes,
        "default": default,
        "form": form,
        "options": {name: option_data(one, "gpus" in form) for name, one in scheduler.partitions.items()},
        "cpus": chosen.cpus_per_task,
        "gpus": min(1, chosen.gpus),
        # whole ones
        "hours": math.ceil(seconds_in(scheduler.time) / 3600),
    }


def default_partition(site: Site) -> tuple[Optional[str], Partition]:
    """Return name and Partition of the first partition where jobs share nodes, else of the site's default one."""
    shared = next((name for name, one in site.scheduler.partitions.items() if not one.exclusive), None)
    return site.scheduler.partition(shared)


def node_data(partition: Partition) -> dict[str, Any]:
    """Return what a node of a partition has; memory in MB."""
    return {
        "cpus": partition.tasks * partition.cpus_per_task,
        "gpus": partition.gpus,
        "memory": megabytes(partition),
        "exclusive": partition.exclusive,
        "qos": partition.qos,
    }


def option_data(partition: Partition, with_gpus: bool) -> dict[str, Any]:
    """Return the limits of a partition, as Open OnDemand's dynamic forms read them."""
    node = node_data(partition)
    data: dict[str, Any] = {"data-hide-cpus": True} if partition.exclusive else {"data-max-cpus": node["cpus"]}
    if with_gpus and (partition.exclusive or not partition.gpus):
        data.update({"data-hide-gpus": True, "data-set-gpus": partition.gpus})
    elif with_gpus:
        data["data-max-gpus"] = partition.gpus
    return data


def megabytes(partition: Partition) -> Optional[int]:
    """Return the memory of a node in MB; None if the profile doesn't say, or in another notation."""
    found = re.fullmatch(r"(\d+)([KMGT]?)B?", (partition.memory or "").upper())
    return found and int(int(found.group(1)) * MEGABYTES[found.group(2)])


def check_jupyterlab(installation: Installation) -> None:
    """Raise EbsifError if neither the image nor the user software of a module has JupyterLab."""
    record = current.record_of(installation)
    if "jupyterlab" not in {*record.image_versions, *record.venv_versions}:
        raise EbsifError(
            f"{places.word(installation)} has no JupyterLab, neither in the image nor in user software; add it with:\n"
            f"  {places.adding(installation, 'jupyterlab')}"
        )


def our_templates() -> "Environment":
    """Return the templates, with filters for Ruby and YAML."""
    templates = environment("ebsif.publish.ondemand", "ebsif.jobs")
    templates.filters.update(
        # text in a template of Open OnDemand's
        erb=lambda text: text.replace("<%", "<%%"),
        json=json.dumps,
        # in a tag of such a template
        ruby=lambda text: "'" + text.replace("\\", "\\\\").replace("'", "\\'").replace("%>", "%%>") + "'",
        # JSON is YAML
        yaml=json.dumps,
    )
    return templates
