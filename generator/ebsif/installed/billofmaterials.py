"""The software bill of materials of an installation, in CycloneDX JSON, from its lock file."""

from cyclonedx.model import HashAlgorithm, HashType, Property
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from easybuild.easyblocks.generic.container.texts import normal_name
from packageurl import PackageURL


def render(record):
    """
    Return the bill of materials of an installation.

    Parameters
    ----------
    record : dict
        The lock file, as `ebsif.lock.read` returns it.

    Returns
    -------
    str
        CycloneDX 1.5 in JSON: the module, the image as a container, and every Python package of the image and of
        user software, with its SHA256 where pip told it.
    """
    module = record.get("module", {})
    bom = Bom()
    bom.metadata.component = Component(
        name=module.get("name", record["image"]["file"]),
        version=module.get("version", "") + module.get("versionsuffix", "") or None,
        type=ComponentType.APPLICATION,
        bom_ref="module",
    )
    bom.metadata.tools.components.add(
        Component(name="ebsif", version=record.get("versions", {}).get("ebsif"), type=ComponentType.APPLICATION)
    )
    image = Component(
        name=record["image"]["file"],
        type=ComponentType.CONTAINER,
        bom_ref="image",
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=record["image"]["sha256"])],
    )
    in_image = [package(line, "image") for line in record.get("image_packages", [])]
    in_venv = [package(line, "user-software", record.get("artifacts", {})) for line in record.get("venv_packages", [])]
    for component in [image, *in_image, *in_venv]:
        bom.components.add(component)
    bom.register_dependency(image, in_image)
    bom.register_dependency(bom.metadata.component, [image, *in_venv])
    return make_outputter(bom, OutputFormat.JSON, SchemaVersion.V1_5).output_as_string(indent=2) + "\n"


def package(line, place, artifacts=None):
    """Return the component of a Python package, from a line like ``name==version``."""
    name, version = line.split("==", 1)
    artifact = (artifacts or {}).get(normal_name(name))
    hashes = [HashType(alg=HashAlgorithm.SHA_256, content=artifact["sha256"])] if artifact else []
    return Component(
        name=name,
        version=version,
        type=ComponentType.LIBRARY,
        bom_ref=f"{place}:{name}@{version}",
        purl=PackageURL("pypi", name=name, version=version),
        # a hash of a file that was installed from, not of what is installed
        properties=[Property(name="ebsif:place", value=place)],
        hashes=hashes,
    )
