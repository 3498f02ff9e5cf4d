"""Put the environment of a module into a registry or an OCI layout directory, for others.

One artifact has the user software, the lock, the bill of materials and the easyconfig, but not the image: `ebsif pull`
makes the module where the same image is available. A module with a credential in its record or easyconfig is refused.
The login for the registry is the container runtime's (`apptainer registry login`).
"""

import contextlib
import json
import shlex
from argparse import ArgumentParser, Namespace

from ebsif.commands.options import add_json, add_license, add_name, names_of
from ebsif.environments import artifact, portable
from ebsif.errors import EbsifError
from ebsif.images.registry.connection import TransferError
from ebsif.images.registry.manifest import RegistryContentError
from ebsif.images.registry.reference import open_repository
from ebsif.report import output

EXAMPLES = """\
  ebsif push mine oras://registry.example/group/mine:1
  ebsif push mine oras://registry.example/group/mine:1 --license MIT
  # a directory, to carry to a machine without network access
  ebsif push mine oci:environments:mine
"""


def configure(parser: ArgumentParser) -> None:
    """Add the arguments."""
    add_name(parser, "module", "what to put there", only_installed=True, required=True)
    parser.add_argument("reference", metavar="REF", help="where to put it: oras://HOST/PATH:TAG or oci:DIRECTORY:TAG")
    add_license(parser)
    add_json(parser)


def run(options: Namespace) -> int:
    """Push the environment; return 0."""
    reference = artifact.reference_to_push(options.reference)
    found = portable.of(names_of(options).installation(options.module), options.license)
    if not found.squashfs:
        raise EbsifError(f"{found.module} has no packages of its own: others need only its image")
    repository, before = open_repository(reference), None
    with contextlib.suppress(TransferError, RegistryContentError):
        before = repository.resolve(reference.tag)
    with artifact.transferring("pushing user software", found.squashfs.stat().st_size) as progress:
        manifest = artifact.push(found, repository, progress)
    if before and before != manifest.digest:
        output.note(
            f"{reference} pointed to another environment until now; it can still be pulled by its digest: "
            f"{reference.with_digest(before)}"
        )
    if options.json:
        print(
            json.dumps(
                {
                    "module": found.module,
                    "reference": str(reference.with_digest(manifest.digest)),
                    "digest": manifest.digest,
                },
                indent=2,
            )
        )
        return 0
    print(reference.with_digest(manifest.digest))
    output.hint(f"others install it with: {shlex.join(['ebsif', 'pull', str(reference)])}")
    return 0
