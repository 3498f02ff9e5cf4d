##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
What is known of the signature of an image, and what is done about it.

Doesn't import EasyBuild, so that commands can use it too.
"""

from easybuild.easyblocks.generic.container.imagesource import DOCKER_ARCHIVE, OCI_ARCHIVE

# What is done about signatures (easyconfig parameter 'signature').
REQUIRED, RECORDED, IGNORED = 'required', 'recorded', 'ignored'
SIGNATURES = (IGNORED, RECORDED, REQUIRED)

# What the verification found; the keys of TEXTS are in the record.
VERIFIED, UNSIGNED, FOREIGN, ALTERED, UNKNOWN = 'verified', 'unsigned', 'foreign', 'altered', 'unknown'
TEXTS = {
    VERIFIED: "is signed by %s",
    UNSIGNED: "is not signed",
    FOREIGN: "is not signed with one of the keys in 'signature_keys' (%s)",
    ALTERED: "was altered after it had been signed (%s)",
    UNKNOWN: "may be signed, which can't be verified here (%s)",
}
REMEDIES = {
    UNSIGNED: "Get the signed image, or sign it with a key of yours (`apptainer sign`).",
    FOREIGN: "If you trust who signed it, add the public key to 'signature_keys', which needs those of all signers.",
    ALTERED: "Don't use it, get the image again.",
    UNKNOWN: "cosign verifies what an image was converted from: load its module or run eb on a node that has it and "
             "reaches the registry, log in if the registry wants that (`apptainer registry login`), and name a key in "
             "PEM format in 'signature_keys'.",
}
# sources whose signatures nothing verifies
ARCHIVES = (DOCKER_ARCHIVE, OCI_ARCHIVE)
OF_ARCHIVES = "Signatures of archives can't be verified: use a directory that `cosign save --dir DIRECTORY` has " \
    "written (oci:DIRECTORY), or convert the archive (`apptainer build`), sign the SIF file (`apptainer sign`), and " \
    "name that."


class Signature:
    """
    What is known of the signature of an image.

    Attributes
    ----------
    state, details : str
        What the verification found; who signed the image, or what the problem is.
    sha256 : str
        The SHA256 of the image that was verified, None if there was no file.
    remedy : str
        What to do about it.
    """

    def __init__(self, state, details, remedy=None):
        """Set them."""
        self.state = state
        self.details = details
        self.sha256 = None
        self.remedy = remedy or REMEDIES.get(state)

    def __str__(self):
        """Return what follows "the image ..."."""
        return TEXTS[self.state].replace('%s', self.details or "unknown")

    @property
    def record(self):
        """The part of the record on it (dict of str)."""
        return {'state': self.state, 'details': self.details}
