"""Check single records: review marks, images, requirements, and ROCm versions against the site's driver."""

import contextlib
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Optional

from easybuild.easyblocks.generic.container.image.sif import signers
from easybuild.easyblocks.generic.container.image.source import CONVERTED, ImageSource
from easybuild.easyblocks.generic.container.newest import version_key
from easybuild.easyblocks.generic.container.requirements import is_pinned, package_name
from easybuild.easyblocks.generic.container.sitevalues import GPU_KINDS, runtime_name
from easybuild.easyblocks.generic.container.values import normal_name

from ebsif.catalog.container import Container
from ebsif.catalog.site import is_between
from ebsif.catalog.stages import as_parameter
from ebsif.files import IMAGES, is_there
from ebsif.images.checksum import difference
from ebsif.render import easyconfig
from ebsif.report.findings import ERROR, WARNING, Finding

# Creates a finding from level and text, and computes the SHA256 of a file.
Creator = Callable[[str, str], Finding]
Digest = Callable[[Path], str]

# The comment by which users and `ebsif add` mark a value for review.
REVIEW = re.compile(r"(?:^|(?<=\s))#\s*review\b:?\s*(.*)")

# The field of a line.
KEY = re.compile(r"[ -]*([^\s:#{\[]+):(?:\s|$)")


def check_reviews(path: Path) -> Iterator[Finding]:
    """Yield a finding for each guess of `ebsif add` that nobody has reviewed."""
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError):  # reported when the records are read
        return
    for number, line in enumerate(lines, 1):
        mark, key = REVIEW.search(line), KEY.match(line)
        if mark:
            what = f": {mark.group(1)}" if mark.group(1) else ""
            yield Finding(
                WARNING,
                key.group(1) if key else path.stem,
                f"not reviewed yet{what} (check it, then remove the comment '# review')",
                str(path),
                number,
            )


def check_record(container: Container, finding: Creator, digest: Optional[Digest]) -> Iterator[Finding]:
    """Yield findings on a record that don't need its easyconfig; images are read if there is a `digest`."""
    if not container.file_name.endswith(IMAGES):
        yield finding(WARNING, f"the image {container.file_name} does not end in .sif")
    # in the name of the image it distinguishes that, and `ebsif add` reads it there
    if container.label and "{label}" not in f"{container.suffix_template} {container.file}":
        yield finding(WARNING, "label: it distinguishes no modules, because 'suffix' has no {label}: add that to it")
    yield from check_image(container, finding, digest)
    yield from check_signature(container, finding)


def check_signature(container: Container, finding: Creator) -> Iterator[Finding]:
    """Yield findings where a signature (R-04) will be missed: keys that don't exist, an unsigned image."""
    keys = easyconfig.signature_keys(container)
    if not keys:
        return
    images = [path for _, path in container.image_places if is_there(path)]
    for key in map(Path, keys):
        # elsewhere than on the machine of the site nothing is there; eb searches names without a directory
        if key.is_absolute() and not is_there(key) and (images or is_there(key.parent)):
            yield finding(ERROR, f"signature_keys: {key} does not exist: correct the path, or export the public key")
    if container.source and ImageSource.parse(container.source).kind in CONVERTED and not images:
        runtime = runtime_name()
        yield finding(
            WARNING,
            "source: what the runtime converts has no signature, so eb will refuse it: convert it "
            f"(`{runtime} build`), sign the SIF file (`{runtime} sign`), and use that file",
        )
    for path in images:
        with contextlib.suppress(OSError):
            if not signers(str(path)):
                yield finding(
                    ERROR,
                    f"{path} is not signed, so eb will refuse it (signature_keys): sign it with "
                    f"`{runtime_name()} sign`, and correct size and sha256 of the record",
                )


def check_image(container: Container, finding: Creator, digest: Optional[Digest]) -> Iterator[Finding]:
    """Yield findings on an accessible image: a missing file, a missing or wrong checksum, a moving link."""
    places = [path for _, path in container.image_places if is_there(path)]
    folders = missing_in(container, bool(digest))
    if folders:
        yield finding(
            ERROR if container.image_kind == "central" else WARNING,
            f"the image {container.file_name} is missing in {' and '.join(map(str, folders))}",
        )
    if places and not container.sha256:
        yield finding(WARNING, f"{places[0]} is accessible, but the record has no sha256")
    for path in places:
        try:
            different = difference(path.resolve(), container.size, container.sha256, digest)
        except OSError as error:
            yield finding(ERROR, f"{path} can't be read: {error}")
            continue
        if different:
            yield finding(
                ERROR,
                f"{path} was {different.how}, so it is not the image of the record: "
                f"{different.figures} (run `ebsif scan`)",
            )
    problem = easyconfig.moving_problem(container)
    if problem:
        yield finding(ERROR, problem)


def missing_in(container: Container, images: bool) -> list[Path]:
    """Return the directories here that lack an image that should be there; without `images`, only a central one."""
    # one with a source is fetched there; what is in a closed directory is unknown
    if container.source or not (images or container.image_kind == "central") or is_here(container):
        return []
    return [path.parent for _, path in container.image_places if os.access(path.parent, os.X_OK)]


def is_here(container: Container) -> bool:
    """Return whether the image is in one of its directories."""
    return any(is_there(path) for _, path in container.image_places)


def check_rocm(container: Container, finding: Creator) -> Iterator[Finding]:
    """Yield a finding if the driver of the site does not support the ROCm of the image (S001-17)."""
    problem = easyconfig.driver_problem(container)
    if problem and not container.archived:
        yield finding(WARNING, problem)


def check_requirements(container: Container, finding: Creator) -> Iterator[Finding]:
    """Yield findings on requirements: warnings of the easyblock, wheels for another GPU, unpinned versions."""
    if not container.requirements:
        return
    from easybuild.easyblocks.generic.container.stages import PipStage, find_mistakes
    from easybuild.tools.build_log import EasyBuildError

    try:
        stages = PipStage.from_parameter(as_parameter(container.requirements))
    except EasyBuildError as error:
        yield finding(ERROR, str(error).strip("'\""))
        return
    inside = [normal_name(name) for name in [*container.components, container.package or container.name]]
    for text in find_mistakes(stages, inside, "of a version not known yet"):
        yield finding(ERROR if "built against torch" in text else WARNING, text)
    for stage in stages:
        for line in stage.requirement_list:
            yield from check_line(container, stage.name, line, finding)


def check_line(container: Container, stage: str, line: str, finding: Creator) -> Iterator[Finding]:
    """Yield findings on one line of requirements."""
    from easybuild.easyblocks.generic.container.packages import gpu_label

    built, version = gpu_label(line)
    kind = container.gpu_kind
    if built in GPU_KINDS:
        there = container.components.get(built)
        if built != kind:
            yield finding(ERROR, f"stage '{stage}': {line} is built for {built}, but the site has {kind}")
        elif there and version and not is_between(there, version, version):
            yield finding(
                WARNING, f"stage '{stage}': {line} is built for {built} {version}, but the image has {built} {there}"
            )
    rocm = container.components.get("rocm")
    if package_name(line) == "bitsandbytes" and rocm and version_key(rocm) < version_key("6.1"):
        yield finding(ERROR, f"stage '{stage}': bitsandbytes needs ROCm 6.1 or newer, but the image has {rocm}")
    if not is_pinned(line):
        yield finding(WARNING, f"stage '{stage}': {line} is not pinned (==), so the installed version may change")
