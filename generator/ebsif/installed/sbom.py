"""Make the software bill of materials of an installation (CycloneDX 1.5, JSON) from its lock file."""

import json
import time
import uuid
from collections.abc import Iterable
from typing import Any, Optional
from urllib.parse import quote

from easybuild.easyblocks.generic.container.record.lockfile import (
    IN_LAYER,
    IN_USER_SOFTWARE,
    ImageRecord,
    Package,
    Record,
)
from easybuild.easyblocks.generic.container.values import normal_name

# Name of the file in what is given to others.
BILL_OF_MATERIALS = "sbom.cdx.json"


def bill_of_materials(record: Record, seconds: float) -> str:
    """
    Return the bill of materials of an installation, at a time in seconds since 1970.

    It lists the module, the image as a container, and every package of the image and of user software, with the SHA256
    of the file that pip or apt installed, if it is known. The same arguments give the same text.
    """
    image, packages = record.image, record.packages
    debs = {name: {"sha256": digest} for name, digest in record.system_layer.debs.items()}
    in_image = [
        package_component(one, debs if one.place == IN_LAYER else {}, record.system)
        for one in packages
        if one.place != IN_USER_SOFTWARE
    ]
    in_venv = [
        package_component(one, record.artifacts, record.system) for one in packages if one.place == IN_USER_SOFTWARE
    ]
    about = component("application", record.module.get("name", image.file), "module", version=record.full_version)
    container = component(
        "container", image.file, "image", hashes=sha256_hashes(image.sha256), properties=image_properties(image)
    )
    content = {
        "$schema": "http://cyclonedx.org/schema/bom-1.5.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds)),
            "tools": {
                "components": [
                    drop_empty({"type": "application", "name": "ebsif", "version": record.versions.get("ebsif")})
                ]
            },
            "component": about,
        },
        "components": [container, *in_image, *in_venv],
        "dependencies": [dependency_entry(about, [container, *in_venv]), dependency_entry(container, in_image)]
        + [dependency_entry(one, []) for one in in_image + in_venv],
    }
    content["serialNumber"] = f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(content, sort_keys=True))}"
    return json.dumps(content, indent=2, sort_keys=True) + "\n"


def package_component(package: Package, artifacts: dict[str, dict[str, str]], system: dict[str, Any]) -> dict[str, Any]:
    """Return the component of a package; `artifacts` and `system` are those of the record."""
    kind, place, name, version = package
    artifact = artifacts.get(normal_name(name) if kind == "pypi" else name)
    # Python packages came first
    reference = place if kind == "pypi" else f"{place}:{kind}"
    return component(
        "library",
        name,
        f"{reference}:{name}@{version}",
        version=version,
        purl=package_url(kind, name, version, system),
        properties=[{"name": "ebsif:place", "value": place}],
        # of the wheel or source distribution, not of the installed files
        hashes=sha256_hashes(artifact["sha256"]) if artifact else None,
    )


def package_url(kind: str, name: str, version: str, system: dict[str, Any]) -> str:
    """Return the URL of a package: https://github.com/package-url/purl-spec; `system` as in the record."""
    if kind == "pypi":
        # names in lower case, with '-' for '_'
        name = name.lower().replace("_", "-")
    if kind not in ("deb", "rpm", "apk"):
        return f"pkg:{kind}/{quote(name, safe='')}@{quote(version, safe=':')}"
    name, _, architecture = name.partition(":")
    qualifiers = [("arch", architecture)]
    if kind == "rpm" and ":" in version:
        epoch, version = version.split(":", 1)
        qualifiers.append(("epoch", epoch))
    distribution = system.get("distribution")
    if distribution:
        qualifiers.append(("distro", "-".join(filter(None, [distribution, system.get("release")]))))
    text = "&".join(f"{key}={quote(value, safe=':/')}" for key, value in sorted(qualifiers) if value)
    namespace = quote(distribution, safe="") + "/" if distribution else ""
    return f"pkg:{kind}/{namespace}{quote(name, safe='')}@{quote(version, safe=':')}" + (f"?{text}" if text else "")


def image_properties(image: ImageRecord) -> list[dict[str, str]]:
    """Return what else is known about the image, as CycloneDX properties."""
    values = [("ebsif:source", image.resolved or image.source)]
    if image.source_digest:
        values += [("ebsif:fetched-from", image.source), ("ebsif:fetched-digest", image.source_digest)]
    values += [("ebsif:signature-verified", name) for name in image.verified]
    values += [("ebsif:signed-by", fingerprint or "unknown") for fingerprint in image.signers]
    values += [(f"ebsif:label:{name}", text) for name, text in sorted(image.labels.items())]
    return [{"name": name, "value": text} for name, text in values if text]


def component(kind: str, name: str, reference: str, **more: Any) -> dict[str, Any]:
    """Return a CycloneDX component, without empty values."""
    return drop_empty({**more, "type": kind, "name": name, "bom-ref": reference})


def drop_empty(values: dict[str, Any]) -> dict[str, Any]:
    """Return a dictionary without its empty values."""
    return {key: value for key, value in values.items() if value}


def sha256_hashes(digest: Optional[str]) -> list[dict[str, Optional[str]]]:
    """Return a SHA256 in CycloneDX's format."""
    return [{"alg": "SHA-256", "content": digest}]


def dependency_entry(one: dict[str, Any], others: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Return the CycloneDX entry for the components that one depends on."""
    return drop_empty({"ref": one["bom-ref"], "dependsOn": [other["bom-ref"] for other in others]})
