"""An image that was converted, with the note on where it is from."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from easybuild.easyblocks.generic.container.imagenote import note_path
from easybuild.easyblocks.generic.container.imagesource import ImageSource
from easybuild.easyblocks.generic.container.signature import Signature
from easybuild.easyblocks.generic.container.verification import Verification
from httpfiles import digest_of

SIF = bytes(32) + b"SIF_MAGIC" + bytes(300_000)
DIGEST = "sha256:" + "1" * 64
SOURCE = f"docker://registry.example/ai/x:1@{DIGEST}"


@pytest.fixture
def noted_image(tmp_path):
    """An image that nobody has signed, with a note."""
    path = tmp_path / "images/x.sif"
    path.parent.mkdir(mode=0o755)
    path.write_bytes(SIF)
    write_note(path)
    for file in path.parent.iterdir():
        file.chmod(0o644)
    return path


def write_note(image, **changes):
    """Write a note on an image."""
    note = {"source": SOURCE, "source_digest": DIGEST, "sha256": digest_of(image.read_bytes())[7:], **changes}
    Path(note_path(str(image))).write_text(json.dumps(note))


def verify(image, source=SOURCE):
    """Return the Signature of an image, with a registry in which everything is signed."""
    verifying = Verification(SimpleNamespace(path="apptainer"), [], str(image.parent / "keyring"))
    verifying.of_source = lambda source: Signature("verified", str(source))
    return verifying.of_image(str(image), str(image), ImageSource.parse(source) if source else None)
