##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
Explain why pip failed in a container, and what to do about it.
"""
import os
import re
from typing import Collection, List, Mapping, Optional, Sequence, Tuple

from .builds import missing_module, missing_tool
from .texts import normal_name

# pip's message if no index or directory has a suitable version, or none could be read
NOTHING_FOUND = 'No matching distribution found'


def how_to_replace(names: Sequence[str], reasons: Mapping[str, str]) -> str:
    """Return what to do to replace packages of the image all the same; see `Diagnosis` for the reasons."""
    # what another package requires can be given up, what is built for the machine is meant twice
    force = '' if all(' needs ' in reasons.get(normal_name(name), '') for name in names) else ' --force'
    return ("to replace it on purpose: `ebsif extend ... --replace %s%s` (in an easyconfig, 'allow_replace': %s of "
            "this stage)" % (' '.join('%s==VERSION' % name for name in names), force, list(names)))


class Diagnosis:
    """
    The cause of a failure of pip, found in its output with a table of messages and their meaning.

    The table has messages of pip 22 to 26, and of the tools that it runs.
    """

    # (pattern, meaning); \1 ... are the groups of the match; first what is wrong with the machine or the network
    MACHINE = [
        (r"(?:No space left on device|ENOSPC)",
         "the disk is full, in the build directory or where pip keeps its files. Free some space, or choose another "
         "build directory (EASYBUILD_BUILDPATH)"),
        (r"Disk quota exceeded",
         "your disk quota is exceeded. Remove files, or choose another build directory (EASYBUILD_BUILDPATH)"),
        (r"(?:incomplete-download|not enough bytes were received)",
         "a download broke off. Look whether the disk of the build directory (EASYBUILD_BUILDPATH) is full; otherwise, "
         "try again"),
        (r"fatal: unable to access '([^']+)': Could not resolve host",
         "git can't reach \\1: there is no network here, or no such host. Check the URL, or install on a node with "
         "network"),
        (r"(?:Temporary failure in name resolution|Name or service not known|Network is unreachable|"
         r"Failed to establish a new connection|No route to host|"
         r"Could not fetch URL \S+: connection error)",
         "there is no network here, or that host can't be reached. Install on a node with network, or set "
         "PIP_INDEX_URL to a mirror that can be reached"),
        (r"Could not find a suitable TLS CA certificate bundle, invalid path: (\S+)",
         "\\1 is not in the container: REQUESTS_CA_BUNDLE, CURL_CA_BUNDLE or PIP_CERT names a file of this machine. "
         "Add its directory to EBSIF_INSTALL_BIND, or unset the variable"),
        (r"(?s)load_verify_locations.*?\nFileNotFoundError",
         "the image lacks the file of certificates (ca-certificates) that its pip reads whenever it starts. Use an "
         "image that has it, or bind this machine's directory of certificates for the installation: export "
         "EBSIF_INSTALL_BIND=/etc/ssl/certs"),
        (r"(?:CERTIFICATE_VERIFY_FAILED|certificate verify failed)",
         "the image doesn't trust the certificate of the index. If this machine has its own certificates, add their "
         "directory to EBSIF_INSTALL_BIND and set PIP_CERT to the file"),
        (r"\b(40[13])(?= Client Error| while getting| Forbidden| Unauthorized)",
         "the index denies access (HTTP \\1). Check its URL and whether it needs a password"),
        (r"git (?:clone|fetch)\b[^\n]*? (\w+(?:\+\w+)?://\S+)[^\n]* did not run successfully",
         "git can't fetch \\1. Check the URL, whether it needs a login, and whether this machine can reach it"),
    ]
    REQUIREMENTS = [
        (r"(?s)DO NOT MATCH THE HASHES.*?\n\s+(\S+)(?: from \S+)?.*?Expected (\w+) (\w+).*?Got\s+(\w+)",
         "pip got another file of \\1 than the locked file: its \\2 is \\4, not \\3. Find out why the index "
         "has another file; if that is intended, lock the packages again"),
        (r"(?:In --require-hashes mode, all requirements must have their versions pinned|Hashes are required in "
         r"--require-hashes mode|Can't verify hashes for these).*\n\s+(\S+)",
         "as some requirements of the stage have hashes, pip only installs what is listed with exact version and hash, "
         "and \\1 is not. Add it with its hash, lock the packages again for this image, or install it in a stage of "
         "its own"),
        (r"Invalid(?:Requirement|Marker): (.*)",
         "a requirement can't be read: \\1"),
        (r"(?s)(?:Getting requirements to build|Preparing metadata|Building wheel|Installing build dependencies)"
         r".*?ModuleNotFoundError: No module named '([\w.]+)'",
         "it needs '\\1' at build time, which neither the image nor an earlier stage has. Install '\\1' first: in an "
         "earlier stage, or in an extension of its own, and this extension on top. Then it is built without isolation"),
        (r"BackendUnavailable: Cannot import '(\w+)",
         "it is built without isolation, and neither the image nor an earlier stage has '\\1', which builds it. "
         "Install '\\1' first: in an earlier stage, or in an extension of its own, with this extension on top"),
        (r"Cannot find command 'git'",
         "git is missing in the image, so requirements from git repositories can't be installed. Use a release from an "
         "index, or a wheel built elsewhere, or add git: system_packages = ['git']"),
        (r"ERROR: (\S+) is not a supported wheel on this platform",
         "the wheel \\1 is for another Python version or another platform than the image's"),
        (r"No matching distribution found for (\S+\+(?:rocm|cu|cpu)[\w.]*)",
         "none of the searched indexes and directories has \\1, a build for specific GPU software. Check that it "
         "matches the image, and add the index with such builds to the stage ('extra_index_url')"),
        (r"No matching distribution found for (\S+)",
         "none of the searched indexes and directories has a suitable version of \\1. Check the spelling, the version, "
         "and whether it supports the Python of the image"),
    ]

    def __init__(self, output: str, log: str = '', pins: Collection[str] = (),
                 reasons: Optional[Mapping[str, str]] = None) -> None:
        """
        Store the output of a failed pip, and the contents of its log file (option --log).

        Only the log says why an index returned no packages. `pins` are the normalized names of packages whose versions
        the easyconfig determines (parameter 'constraints'), `reasons` say why packages of the image can't be replaced.
        """
        self.output = output
        self.log = log
        self.pins = pins
        self.reasons = reasons or {}

    @property
    def package(self) -> str:
        """The package that pip was processing, if it says that and no other one is the cause; else empty."""
        if self.conflict or NOTHING_FOUND in self.output:
            return ''
        before = self.output.split('error: subprocess-exited-with-error')[0]
        found = re.findall(r'^\s*(?:Collecting|Processing|Building wheels? for) (?:collected packages: )?(\S+)', before,
                           re.MULTILINE)
        return os.path.basename(found[-1].rstrip(',')) if found else ''

    @property
    def library(self) -> str:
        """An explanation if a GPU library is missing; else empty."""
        found = re.search(r'\b(lib(?:cu\w+|nv\w+|nccl|amdhip64|hip\w*|hsa\w*|roc\w+|rccl|MIOpen)\.so(?:\.\d+)*): '
                          r'cannot open shared object file', self.output)
        if not found:
            return ''
        kind = 'CUDA' if re.match('lib(cu|nv|nccl)', found.group(1)) else 'ROCm'
        return ("A package is built for a version of %s that the image doesn't have (it needs %s): use the build for "
                "the image's GPU software. " % (kind, found.group(1)))

    @property
    def conflict(self) -> str:
        """An explanation if requirements conflict with protected packages; else empty."""
        protected = re.findall(r'The user requested \(constraint\) (\S+)', self.output)
        if not protected:
            return ''
        asked = re.findall(r'^\s+(\S+ \S+ depends on .*|The user requested (?!\(constraint\)).*?)\s*$', self.output,
                           re.MULTILINE)
        reasons = '; '.join(dict.fromkeys(asked)) or 'see the output above'
        names = sorted({re.split('[=<>!~;]', one)[0] for one in protected})
        name = re.split('[=<>!~;]', protected[0])[0]
        if normal_name(name) in self.pins:
            return ("%s is installed now and keeps its version ('constraints' in the easyconfig), but: %s. For another "
                    "version: `ebsif extend ... --add '%s'` with the version that is needed" % (
                        protected[0], reasons, name))
        kept = ["%s of the image (%s)" % (one, self.reasons[name]) if name in self.reasons else "%s of the image" % one
                for one, name in sorted({one: normal_name(re.split('[=<>!~;]', one)[0]) for one in protected}.items())]
        return ("%s can't be replaced, but: %s. Ask for a version that works with it; or, %s" % (
            ', '.join(kept), reasons, how_to_replace(names, self.reasons)))

    @property
    def text(self) -> str:
        """The cause and what to do about it; empty if the output matches nothing in the table."""
        if self.conflict:
            return self.conflict
        return self.machine or missing_tool(self.output) or self.meaning_in(self.REQUIREMENTS)

    @property
    def missing_module(self) -> str:
        """The module that the build of a package can't import; empty if pip failed otherwise."""
        failed = re.search(r"error: (?:subprocess-exited-with-error|backend-unavailable).*", self.output, re.DOTALL)
        return missing_module(failed.group()) if failed else ''

    @property
    def machine(self) -> str:
        """The problem of the machine or the network, and what to do about it; empty if none is found."""
        return self.meaning_in(self.MACHINE)

    def meaning_in(self, table: List[Tuple[str, str]]) -> str:
        """Return the meaning of the first pattern of a table that the output matches; empty if none does."""
        text = self.output + (self.log if NOTHING_FOUND in self.output else '')
        for pattern, meaning in table:
            found = re.search(pattern, text)
            if found:
                return found.expand(meaning)
        return ''
