##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
Explain why pip failed in a container, and what to do about it.
"""
import importlib
import os
import re
from typing import Callable, Collection, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from . import missing, remedies
from .messages import NO_VERSION
from .sitevalues import GPU_KINDS
from .values import normal_name

# pip's message if no index or directory has a suitable version, or none could be read
NOTHING_FOUND = 'No matching distribution found'
# pip's messages on hosts that can't be reached, and the names of hosts in them
UNREACHABLE = re.compile(r'Temporary failure in name resolution|Name or service not known|Network is unreachable|'
                         r'Failed to establish a new connection|No route to host|Failed to resolve|'
                         r'Could not fetch URL \S+: connection error')
HOST = re.compile(r"Could not fetch URL https?://([^/\s]+)\S*: connection error|"
                  r"\bhost='([^']+)'.*(?:Failed to|Max retries)|Failed to resolve '([^']+)'")
# pip's heading over the requirements that contradict each other, and what ends them
CAUSES = re.compile(r'The conflict is caused by:\n(.*?)(?:\n\s*\n|\nTo fix this|\Z)', re.DOTALL)
# whose requirement (name and version), on what, which versions
ASKED = re.compile(r'^\s+(?:The user requested |(\S+) (\S+) depends on )(?!\(constraint\))([\w.-]+)(?:\[[^\]]*\])?'
                   r' *([^\s;]*)', re.MULTILINE)
# Most characters of the requirements in a message.
MOST = 400


class ConflictingRequirement(NamedTuple):
    """
    A requirement that takes part in a conflict.

    Whose it is (the name and version of a package, or empty if the user asked for it), on which package, and which
    versions.
    """

    who: str
    version: str
    on: str
    versions: str


def text_of(asked: ConflictingRequirement, earlier: int) -> str:
    """Return a requirement in words; `earlier` is the number of earlier versions of its package that ask the same."""
    what = asked.on + asked.versions
    if not asked.who:
        return "you ask for %s" % what
    more = " (and %d earlier version%s)" % (earlier, '' if earlier == 1 else 's') if earlier else ''
    return "%s %s needs %s%s" % (asked.who, asked.version, what, more)


def allows(versions: str, version: str) -> Optional[bool]:
    """Return whether a specification of pip allows a version; None if nothing here can tell."""
    for name in ('packaging.specifiers', 'pip._vendor.packaging.specifiers', 'setuptools.extern.packaging.specifiers'):
        try:
            specifiers = importlib.import_module(name).SpecifierSet(versions)
            return bool(specifiers.contains(version, prereleases=True))
        except (ImportError, AttributeError):
            continue
        except ValueError:
            # of no known form
            return None
    return None


def last_processed(output: str) -> str:
    """Return the package that pip was processing last; empty if it says none."""
    before = output.split('error: subprocess-exited-with-error')[0]
    found = re.findall(r'^\s*(?:Collecting|Processing|Building wheels? for) (?:collected packages: )?(\S+)', before,
                       re.MULTILINE)
    return os.path.basename(found[-1].rstrip(',')) if found else ''


class Diagnosis:
    """
    The cause of a failure of pip, found in its output with a table of messages and their meaning.

    The table has messages of pip 22 to 26, and of the tools that it runs.
    """

    # (pattern, meaning); \1 ... are the groups of the match; first what is wrong with the machine, or its network
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
         "it needs '\\1' at build time, which neither the image nor an earlier stage has. Install the package that has "
         "'\\1' first: in an earlier stage, or in an extension of its own, and this extension on top. Then it is built "
         "without isolation"),
        (r"BackendUnavailable: Cannot import '(\w+)",
         "it is built without isolation, and neither the image nor an earlier stage has '\\1', which builds it. "
         "Install '\\1' first: in an earlier stage, or in an extension of its own, with this extension on top"),
        (r"Cannot find command 'git'",
         "git is missing in the image, so requirements from git repositories can't be installed. Use a release from an "
         "index, or a wheel built elsewhere; or, if the image has apt, add git:" + remedies.line('--apt', 'git')),
        (r"ERROR: (\S+) is not a supported wheel on this platform",
         "the wheel \\1 is for another Python version or another platform than the image's"),
        (r"(?s)The repository located at (\S+) is not a trusted or secure host"
         r".*No matching distribution found for (\S+)",
         "pip leaves out the index on \\1, whose URL begins with http, and no other one " + NO_VERSION + "\\2. "
         "Use its URL with https; or, if you trust the network between this machine and \\1:" +
         remedies.line('--add', r'--trusted-host \1')),
        (r"No matching distribution found for (\S+\+(?:rocm|cu|cpu)[\w.]*)",
         "none of the searched indexes and directories has \\1, a build for specific GPU software. Check that it "
         "matches the image, and add the index with such builds to the stage ('extra_index_url')"),
        (r"No matching distribution found for (\S+)",
         "none of the searched indexes and directories " + NO_VERSION + "\\1. Check the spelling, the version, "
         "and whether it supports the Python of the image"),
    ]

    def __init__(self, output: str, log: str = '', pins: Collection[str] = (),
                 reasons: Optional[Mapping[str, str]] = None, gpu: Optional[str] = None,
                 newest: Optional[Callable[[Dict[str, str]], Dict[str, str]]] = None,
                 image: Optional[Collection[str]] = None) -> None:
        """
        Store the output of a failed pip, and the contents of its log file (option --log).

        Only the log says why an index returned no packages. `pins` are the normalized names of packages whose versions
        the easyconfig determines (parameter 'constraints'), `reasons` say why packages of the image can't be replaced.
        `gpu` is the kind of GPU that the image is for, empty if for none, None if it isn't known. `newest` returns the
        newest versions that specifications allow, by normalized name, as far as an index knows them. `image` has the
        normalized names of the packages of the image; None if they aren't known.
        """
        self.output = output
        self.pins = pins
        self.reasons = reasons or {}
        self.gpu = gpu
        self.newest = newest
        self.image = image
        # what to search for meanings: pip's log says why it found nothing
        self.searched = output + (log if NOTHING_FOUND in output else '')
        # the package that pip was processing last; empty if it says none
        self.processed = last_processed(output)
        # the module that the build of a package can't import; empty if pip failed otherwise
        failed = re.search(r"error: (?:subprocess-exited-with-error|backend-unavailable).*", output, re.DOTALL)
        self.missing_module = missing.missing_module(failed.group()) if failed else ''
        # the constraints that take part in a conflict, as requirements, by normalized name
        found = re.findall(r'The user requested \(constraint\) (\S+)', output)
        self.protected = {normal_name(re.split('[=<>!~;]', one)[0]): one for one in sorted(set(found))}
        # the requirements that take part, without those that the versions of the image meet
        kept = {name: re.split('===?', one) for name, one in self.protected.items()}
        self.asked = [one for one in dict.fromkeys(ConflictingRequirement(*groups) for groups in ASKED.findall(output))
                      if len(kept.get(normal_name(one.on), ())) != 2
                      or not allows(one.versions, kept[normal_name(one.on)][1])]
        # what is asked of the kept packages, as one specification each, by normalized name
        specifications: Dict[str, Dict[str, None]] = {}
        for one in self.asked:
            if normal_name(one.on) in self.protected:
                parts = filter(None, one.versions.split(','))
                specifications.setdefault(normal_name(one.on), {}).update(dict.fromkeys(parts))
        self.wanted = {name: ','.join(parts) for name, parts in specifications.items()}
        self.is_conflict = bool(self.protected or CAUSES.search(output))

    def package(self) -> str:
        """Return the package that pip was processing, if it says that and no other one is the cause; else empty."""
        return '' if self.is_conflict or NOTHING_FOUND in self.output else self.processed

    def library(self) -> str:
        """Return an explanation if a GPU library is missing; else empty."""
        found = re.search(r'\b(lib(?:cu\w+|nv\w+|nccl|amdhip64|hip\w*|hsa\w*|roc\w+|rccl|MIOpen)\.so(?:\.\d+)*): '
                          r'cannot open shared object file', self.output)
        if not found:
            return ''
        kind = 'CUDA' if re.match('lib(cu|nv|nccl)', found.group(1)) else 'ROCm'
        return ("A package is built for a version of %s that the image doesn't have (it needs %s): use the build for "
                "the image's GPU software. " % (kind, found.group(1)))

    def contradiction(self) -> str:
        """Return the requirements that take part in a conflict in words; many versions of a package count once."""
        groups: Dict[Tuple[str, str], List[ConflictingRequirement]] = {}
        for one in self.asked:
            groups.setdefault((one.who, normal_name(one.on)), []).append(one)
        # pip begins with the newest version
        texts = [text_of(group[0], len(group) - 1 if group[0].who else 0) for group in groups.values()]
        shown = [text for number, text in enumerate(texts) if not number or len('; '.join(texts[:number + 1])) <= MOST]
        return '; '.join(shown) + ("; and %d more" % (len(texts) - len(shown)) if texts[len(shown):] else '')

    def conflict(self) -> str:
        """Return an explanation if requirements conflict with protected packages or with each other; else empty."""
        if not self.is_conflict:
            return ''
        protected, why = self.protected, self.contradiction() or 'see the output above'
        if not protected:
            return "the requirements contradict each other: %s. Change one of them, or leave out its version" % why
        names = sorted(name for name in protected if name in self.wanted) or sorted(protected)
        pinned = [name for name in names if name in self.pins]
        if pinned:
            keeps = "are installed now and keep their versions" if pinned[1:] else \
                "is installed now and keeps its version"
            return "%s %s ('constraints' in the easyconfig), but: %s. For another version:%s" % (
                ' and '.join(protected[name] for name in pinned), keeps, why,
                remedies.line('--add', *(name + self.wanted.get(name, '') for name in pinned)))
        own = [protected[name] for name in names if self.image is not None and name not in self.image]
        if own:
            return "%s %s of the requirements (-c), but: %s. Change one of them" % (
                ' and '.join(own), "are constraints" if own[1:] else "is a constraint", why)
        kept = ["%s of the image (%s)" % (protected[name], self.reasons[name]) if name in self.reasons else
                "%s of the image" % protected[name] for name in names]
        return "%s can't be replaced, but: %s. %s" % (', '.join(kept), why, self.ways_out(names))

    def ways_out(self, names: Sequence[str]) -> str:
        """Return what to do if packages of the image are asked for in other versions, the safest first."""
        asked = [one for one in self.asked if normal_name(one.on) in names]
        typed, others = sorted({one.on for one in asked if not one.who}), sorted({one.who for one in asked if one.who})
        ways = ["Ask for other versions of %s." % ' and '.join(others)] if others else []
        if typed:
            ways.append("To take the version of the image, whatever else the requirements say:%s" % remedies.line(
                '--add', *typed))
        ways.append("To replace %s%s" % ('them' if names[1:] else 'it', remedies.how_to_replace(
            names, self.reasons, self.versions(names))))
        exact = [name + self.wanted[name] for name in names if self.wanted.get(name)]
        if exact:
            ways.append("To find containers with what is asked for:\n    %s" % remedies.containers_with(exact))
        return '\n'.join(ways)

    def versions(self, names: Sequence[str]) -> Dict[str, str]:
        """Return the versions to install of packages, by normalized name, as far as they are known."""
        exact = {name: re.findall('===?([^,*]+)$', self.wanted.get(name, '')) for name in names}
        found = {name: versions[0] for name, versions in exact.items() if len(versions) == 1}
        left = {name: self.wanted[name] for name in names if name not in found and self.wanted.get(name)}
        return dict(found, **(self.newest(left) if self.newest and left else {}))

    def text(self) -> str:
        """Return the cause and what to do about it; empty if the output matches nothing in the table."""
        return self.conflict() or self.machine() or self.tool() or self.module() or \
            self.meaning_in(self.REQUIREMENTS)

    def tool(self) -> str:
        """Return an explanation if a build lacks a compiler; else empty."""
        for tool in missing.missing_tools(self.output):
            if tool.gpu and self.gpu not in (None, tool.gpu):
                title = GPU_KINDS[tool.gpu].title
                return ("a build needs %s. The package is for %s, and this image isn't: leave it out, or take an image "
                        "for %s" % (tool.what, title, title))
            return "a build needs %s. Use a wheel of the package, or an image that has the compiler%s" % (
                tool.what, "; or, if the image has apt, add it:%s" % remedies.line('--apt', *tool.packages)
                if tool.packages else '')
        return ''

    def module(self) -> str:
        """Return an explanation if a build can't import a module that a package of pip used to have; else empty."""
        package, name = missing.package_with(self.missing_module), re.split('[=<>!~;[]', self.processed)[0]
        if not (package and name):
            return ''
        return ("%s is built from source, because it has no wheel for the Python of the image, and it needs '%s'. To "
                "take the newest version instead:%s\nOr install '%s' first: in an earlier stage, or in an extension of "
                "its own, and this extension on top" % (
                    self.processed, self.missing_module, remedies.line('--add', name), package))

    def machine(self) -> str:
        """Return the problem of the machine or the network, and what to do about it; empty if none is found."""
        return self.meaning_in(self.MACHINE) or self.network()

    def network(self) -> str:
        """Return the hosts that can't be reached, and what to do; empty if none is found."""
        if not UNREACHABLE.search(self.searched):
            return ''
        hosts = sorted(set(filter(None, sum(HOST.findall(self.searched), ()))))
        named = ' and '.join(hosts)
        if hosts and re.search(r'^\s*(?:Downloading|Obtaining dependency|Collecting \S+\n\s+(?:Downloading|Using))',
                               self.output, re.MULTILINE):
            return ("%s can't be reached from here, although other hosts can. Leave out what needs it; or, download "
                    "the files where it can be reached (pip download), and name their directory:%s" % (
                        named, remedies.line('--add', '--find-links DIRECTORY')))
        return ("there is no network here, or %s can't be reached. Install on a node with network, or set "
                "PIP_INDEX_URL to a mirror that can be reached" % (named or "that host"))

    def meaning_in(self, table: List[Tuple[str, str]]) -> str:
        """Return the meaning of the first pattern of a table that the output matches; empty if none does."""
        for pattern, meaning in table:
            found = re.search(pattern, self.searched)
            if found:
                return found.expand(meaning)
        return ''
