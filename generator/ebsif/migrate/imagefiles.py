"""Read the sources of an easyconfig: the image, the files that it was built from, checksums."""

import re
from pathlib import Path
from typing import Any

from ebsif.catalogue.fieldtypes import PLACEHOLDER
from ebsif.eb import framework
from ebsif.migrate.easyconfigfile import ImportingError, Source
from ebsif.migrate.imported import Imported
from ebsif.migrate.reader import shortened


def read_sources(values: dict[str, Any], found: Imported, source: Source) -> None:
    """Read the image, definition files, other copied files, and the checksum."""
    names = [Path(name).name for name in framework.source_names(values["sources"])]
    images = [name for name in names if name.endswith((".sif", ".simg"))]
    if not images:
        raise ImportingError(f"{found.path}: none of the sources is an image (*.sif)")
    image, line = images[0], source.of("sources")
    if PLACEHOLDER.search(image):
        found.leave(line, f"the name of the image, {image}, has words in braces, which are placeholders in a record")
    found.record["file"] = image
    found.data.append(f"image {image}")
    places = copied_files(values, found, source)
    read_definition_files(names, image, places, found, source)
    for one in values["sources"]:
        more = sorted(set(one) - {"filename", "extract_cmd", "name"}) if isinstance(one, dict) else []
        for key in more:
            found.leave(line, f"sources: {key} = {shortened(one[key])}")
    read_checksums(values, found, source, names.index(image))


def read_definition_files(names, image, places, found, source):
    """Read the sources (list of str) from which the image was built; leave others, and files copied elsewhere."""
    definitions, usual = [], "share/docker-defs"
    for name in names:
        if name == image:
            continue
        if places.get(name, usual) == usual and name.endswith((".docker", ".def")):
            definitions.append(name)
            found.data.append(f"definition file {name}")
        else:
            found.leave(source.having(name, source.of("sources")),
                        f"sources: {name}, which is neither an image nor a definition file")
    if definitions:
        found.record["definition_files"] = definitions
    for name, place in places.items():
        if place != {image: ""}.get(name, usual if name in definitions else None):
            found.leave(source.of("files_to_copy"),
                        f"files_to_copy: {name}, copied to {place or 'the installation directory'}")


def copied_files(values, found, source):
    """Return the files that MakeCp copies, with their directories (dict); '' is the installation directory."""
    places = {}
    for item in values.get("files_to_copy") or []:
        if isinstance(item, str):
            places[Path(item).name] = ""
        elif isinstance(item, list) and len(item) == 2 and isinstance(item[1], str):
            for name in item[0] if isinstance(item[0], list) else [item[0]]:
                places[Path(str(name)).name] = item[1].strip("/").removeprefix("./").strip(".")
        else:
            found.leave(source.of("files_to_copy"), f"files_to_copy: {shortened(item)}")
    return places


def read_checksums(values, found, source, index):
    """Read the SHA256 of the image, which is the source with this index."""
    checksums = values.get("checksums") or []
    one = checksums[index] if isinstance(checksums, list) and index < len(checksums) else None
    if isinstance(one, dict) and len(one) == 1:
        (one,) = one.values()
    if isinstance(one, str) and re.fullmatch("[0-9a-f]{64}", one):
        found.record["sha256"] = one
        found.data.append(f"checksum {one}")
        checksums = [other for number, other in enumerate(checksums) if number != index]
    if isinstance(checksums, dict) or any(checksums):
        found.leave(source.of("checksums"), f"parameter checksums = {shortened(checksums)}")
