"""
The environment of a module as an RO-Crate: files and metadata for the repository of a paper.

https://www.researchobject.org/ro-crate/specification
"""

import re
import tempfile
from pathlib import Path
from typing import Any

from ebsif import filling, version
from ebsif.environments.portable import LOCK, Portable
from ebsif.errors import EbsifError, how_to_add
from ebsif.installed.sbom import BILL_OF_MATERIALS

METADATA = "ro-crate-metadata.json"
SPDX = "https://spdx.org/licenses/"
# name, description and media type of the files
FILES = {
    LOCK: ("Lock", "Image and all packages with their exact versions, to repeat the installation", "application/json"),
    BILL_OF_MATERIALS: (
        "Software bill of materials",
        "The packages of image and module (CycloneDX)",
        "application/vnd.cyclonedx+json",
    ),
}
EASYCONFIG = ("Easyconfig", "With it, EasyBuild installs the module", "text/plain")
# a name in SPDX's list, and no expression
LICENSE = re.compile(r"(?!LicenseRef-)[A-Za-z0-9.-]+")


def write(portable: Portable, directory: Path, overwrite: bool) -> None:
    """Write a crate with lock, bill of materials, easyconfig and metadata into a directory; see `filling.filled`."""
    try:
        # takes long to import
        from rocrate.rocrate import ROCrate
    except ImportError:
        raise EbsifError(f"the library rocrate is missing: {how_to_add('rocrate')}") from None
    with filling.filled(directory, "export", overwrite) as made, tempfile.TemporaryDirectory() as sources:
        crate = ROCrate()
        describe(crate, portable)
        for name, text in portable.texts.items():
            Path(sources, name).write_text(text, encoding="utf-8")
            title, description, kind = FILES.get(name, EASYCONFIG)
            crate.add_file(
                Path(sources, name),
                name,
                record_size=True,
                properties={
                    "name": title,
                    "description": description,
                    "encodingFormat": kind,
                    "about": {"@id": "#module"},
                },
            )
        crate.write(made)


def describe(crate: Any, portable: Portable) -> None:
    """Add metadata to a crate (ROCrate): what it is, its license, the module with its packages, and the image."""
    from rocrate.model.contextentity import ContextEntity

    root = crate.root_dataset
    root["name"] = f"Software environment {portable.module}"
    root["description"] = (
        f"The software of the module {portable.module}, installed with EasyBuild and ebsif "
        f"{version()}: Python packages on top of the container image {portable.record.image.file}."
    )
    root["datePublished"] = portable.installed.date().isoformat()
    root["license"] = crate.add(ContextEntity(crate, *license_of(portable)))
    image = crate.add(ContextEntity(crate, "#image", image_of(portable)))
    root["mainEntity"] = crate.add(
        ContextEntity(
            crate,
            "#module",
            {
                "@type": "CreativeWork",
                "name": portable.module,
                "version": portable.record.full_version,
                "softwareRequirements": portable.record.venv_packages,
                "isBasedOn": image,
            },
        )
    )
    root["mentions"] = image


def license_of(portable: Portable) -> tuple[str, dict[str, Any]]:
    """Return identifier and properties of the license, which a crate must have."""
    name = portable.license
    if not name:
        return "#license", {
            "@type": "CreativeWork",
            "name": "not stated",
            "description": "Whoever wrote this crate has stated no license.",
        }
    if not LICENSE.fullmatch(name):
        return "#license", {"@type": "CreativeWork", "name": name, "description": "A license expression of SPDX"}
    return f"{SPDX}{name}", {
        "@type": "CreativeWork",
        "name": name,
        "description": f"{name} in SPDX's list of licenses",
        "url": f"{SPDX}{name}",
    }


def image_of(portable: Portable) -> dict[str, Any]:
    """Return the properties of the image: its file and digest, and where it is from."""
    image = portable.record.image
    return {
        "@type": "CreativeWork",
        "additionalType": "container image (SIF)",
        "name": image.file,
        "identifier": f"sha256:{image.sha256}",
        "description": "The container image, by the SHA256 of its file",
        **({"isBasedOn": image.source} if image.source_digest else {}),
    }
