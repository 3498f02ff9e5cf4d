##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
Packages of the image's own distribution, as one read-only layer over the image: without root, user namespaces or a
copy of the image.

First, the image's apt simulates the installation in a plain container, which shows mistakes within seconds. Then the
image's system directories are copied to $TMPDIR and bound over those of the image, so that apt can write there. It runs
behind a filter that lets it believe that it is root (files/share/ebsif/as-root.pl). What it has changed becomes a
SquashFS file, which the runtime mounts as an overlay (layer.py).
"""
import difflib
import logging
import os
import re
import shutil
import tempfile
from typing import Any, Dict, Iterable, List, NamedTuple, Optional

from easybuild.tools.build_log import EasyBuildError
from easybuild.tools.filetools import CHECKSUM_TYPE_SHA256, compute_checksum, copy_file, mkdir
from easybuild.tools.utilities import trace_msg

from .. import remedies
from ..copying import sha256_of
from ..framework import RunShellCmdResult
from ..image.installed import InstalledImage
from ..imageprograms import FILES, sh_command
from ..messages import SYSTEM_PACKAGES
from ..overlay import check_mksquashfs
from ..record.lockfile import LAYER, LayerRecord
from ..runtime import SHOWN_LINES, InstallContainer, escape_bind
from ..space import no_space
from ..values import SYSTEM_PACKAGE, format_size, system_names
from ..written import ANY_SIZE, open_written
from .layer import Layer

# What would be, or was, added: the part of the record, in the build directory, for `ebsif extend --check`.
REPORT = 'system-packages.json'

# Set by `ebsif extend --check`: if nothing is built on the packages, they are only looked for.
CHECK_VARIABLE = 'EBSIF_CHECK'

# Directories that packages write to; those that are symbolic links in the image are left out.
DIRECTORIES = ('usr', 'etc', 'var', 'bin', 'sbin', 'lib', 'lib32', 'lib64', 'libx32')

APT = ['-q', '-o', 'APT::Sandbox::User=root', '-o', 'APT::Install-Recommends=false', '-o', 'Acquire::Retries=2',
       '-o', 'Acquire::http::Timeout=30', '-o', 'Acquire::https::Timeout=30', '-o', 'Acquire::Languages=none',
       '-o', 'Dpkg::Use-Pty=0', '-o', 'Dpkg::Options::=--force-confold', '-o', 'Dpkg::Options::=--force-unsafe-io']

# The environment of apt: plain messages, no questions, programs of the distribution only.
ENVIRONMENT = ['env', '-u', 'LD_LIBRARY_PATH', '-u', 'LD_PRELOAD', '-u', 'PYTHONPATH', '-u', 'PYTHONHOME', 'LC_ALL=C',
               'DEBIAN_FRONTEND=noninteractive', 'PATH=/usr/sbin:/usr/bin:/sbin:/bin']

WITHOUT_APT = "Packages of Python from PyPI work with every image (requirements; many bring libraries and programs)."


class Changes(NamedTuple):
    """What apt would change: versions by name, of packages of the image before and after."""

    added: Dict[str, str]
    upgraded: Dict[str, List[str]]


class SystemRequest:
    """The easyconfig parameter 'system_packages': names, and packages of the image that may be upgraded."""

    def __init__(self, value: object) -> None:
        """Store the value, a list of names or a dictionary."""
        settings = value if isinstance(value, dict) else {'packages': value}
        self.names: Any = settings.get('packages')
        self.allow_upgrade: Any = settings.get('allow_upgrade', [])
        self.others = sorted(set(settings) - {'packages', 'allow_upgrade'})

    def __bool__(self) -> bool:
        """Return whether there are any."""
        return bool(self.names)

    def asked(self, installed: Iterable[str]) -> List[str]:
        """
        Return what apt is asked for, in an image that has packages installed.

        apt upgrades what it is asked for. A package of the image stays as it is, unless it was asked for in a version
        or may be upgraded.
        """
        return [name for name in self.names if '=' in name or name in self.allow_upgrade or name not in installed]

    @property
    def problem(self) -> Optional[str]:
        """What is wrong with the value, if anything."""
        lists = [self.names, self.allow_upgrade]
        if self.others or not all(isinstance(one, (list, tuple)) and all(isinstance(name, str) for name in one)
                                  for one in lists):
            return " should be a list of names, or {'packages': [...], 'allow_upgrade': [...]}"
        wrong = [name for one in lists for name in one if not SYSTEM_PACKAGE.match(name)]
        wrong += [name for name in self.allow_upgrade if '=' in name]
        return ": not a name of a package: '%s'" % wrong[0] if wrong else None

    def kept(self, changed: InstalledImage, image: str, target: str) -> Optional[LayerRecord]:
        """
        Copy the layer of the installation that `ebsif extend` changes; return its record, None without one.

        It has to have the same packages for the same image. They keep their versions then (E-03).
        """
        record, path = changed.record.system_layer, os.path.join(changed.root, LAYER)
        if record.sha256 and os.path.isfile(path) and record.requested == list(self.names) and \
                record.allow_upgrade == list(self.allow_upgrade) and record.image == changed.image.sha256 and \
                changed.uses(image) and changed.is_unchanged():
            copy_file(path, target)
            if compute_checksum(target, CHECKSUM_TYPE_SHA256) == record.sha256:
                trace_msg("system packages: the layer of %s has the same packages on the same image" % changed.module)
                return record
        return None

    def add(self, container: InstallContainer, target: str, only_check: bool = False) -> LayerRecord:
        """Make the layer for the image of a container; return its record, without the SHA256 of the image."""
        check_mksquashfs('system_packages')
        folder = os.path.realpath(tempfile.mkdtemp(prefix='system-'))
        # the log of EasyBuild is on the same disk: if that gets full, one error is enough
        raises, logging.raiseExceptions = logging.raiseExceptions, False
        try:
            if os.statvfs(folder).f_flag & os.ST_NOEXEC:
                raise EasyBuildError("System packages can't be added: programs can't be started from %s (it is mounted "
                                     "noexec): set TMPDIR to another directory", os.path.dirname(folder))
            return PackageInstallation(self, container, folder, target).run(only_check)
        except (OSError, EasyBuildError) as err:
            # also if EasyBuild or the runtime can't write their own files
            full = out_of_space(str(err))
            if not full:
                raise
            raise full
        finally:
            logging.raiseExceptions = raises
            remove(folder)


def remove(folder: str) -> None:
    """Remove a directory, in which packages have directories that nobody may write to; also if the disk is full."""
    for path, names, _ in os.walk(folder):
        for name in names:
            if not os.path.islink(os.path.join(path, name)):
                os.chmod(os.path.join(path, name), 0o700)
    shutil.rmtree(folder, ignore_errors=True)


def out_of_space(output: str) -> Optional[EasyBuildError]:
    """Return the error for a full disk, if that is why a program failed."""
    full = no_space(output)
    return EasyBuildError(
        "System packages can't be added: %s\nThe packages and the image's system directories (/usr without the files "
        "in /usr/local, /etc, /var) need room in %s (to choose another: export TMPDIR=DIRECTORY).",
        full, tempfile.gettempdir()) if full else None


def cause(output: str) -> List[str]:
    """Return the lines of a program's output that tell why it failed: what dpkg calls an error, else the last ones."""
    lines = output.strip().splitlines()
    # a script's own words come first, what dpkg makes of them is in the next lines
    shown = [line for number, line in enumerate(lines)
             if any(lines[near].startswith('dpkg: error') for near in range(max(number - 2, 0),
                                                                            min(number + 5, len(lines))))]
    return shown[:SHOWN_LINES] or lines[-SHOWN_LINES:]


class PackageInstallation:
    """Packages that are being installed over copies of the image's directories, in a temporary directory."""

    def __init__(self, wanted: SystemRequest, container: InstallContainer, folder: str, target: str) -> None:
        """Prepare a container of its own: binds of the module may hide files of the image's system."""
        self.wanted = wanted
        self.folder = folder
        self.target = target
        self.root = os.path.join(folder, 'root')
        self.packages = os.path.join(folder, 'cache', 'archives')
        self.container = InstallContainer(container.runtime, container.image, folder)
        self.apt = APT + ['-o', 'Dir::State::Lists=%s/lists' % folder, '-o', 'Dir::Cache=%s/cache' % folder]
        self.system = ''
        self.directories: List[str] = []
        self.installed: List[str] = []
        self.asked: List[str] = []
        for name in ('root', 'lists/partial', 'cache/archives/partial'):
            mkdir(os.path.join(folder, name), parents=True)

    def run(self, only_check: bool) -> LayerRecord:
        """Make the layer."""
        self.probe()
        update = self.update()
        self.installed = self.installed_packages()
        self.asked = self.wanted.asked(self.installed)
        changes = self.simulate(update) if self.asked else Changes({}, {})
        record = LayerRecord(requested=list(self.wanted.names), allow_upgrade=list(self.wanted.allow_upgrade),
                             packages=['%s==%s' % one for one in sorted(changes.added.items())],
                             upgraded=changes.upgraded)
        if not changes.added and not changes.upgraded:
            trace_msg("system packages: the image has all of these packages; nothing to do")
            return record
        trace_msg("system packages: %s" % record.summary)
        if only_check:
            return record
        self.copy(changes)
        layer = Layer(self.container, self.root, self.folder)
        self.install()
        record.debs = self.digests()
        layer.make(self.target, self.listed(changes))
        record.replaced, record.hidden = layer.replaced(), ['/' + path for path in layer.gone]
        record.size, record.sha256 = os.path.getsize(self.target), compute_checksum(
            self.target, CHECKSUM_TYPE_SHA256)
        trace_msg("system packages are %s in one file" % format_size(record.size))
        if layer.left_out:
            trace_msg("system packages: these files can't be in a layer, so packages may lack them: %s" % ', '.join(
                '/' + path for path in layer.left_out))
        return record

    def path(self, path: str) -> str:
        """Return the path of a file in the copy of the image's directories."""
        return os.path.join(self.root, path)

    def command(self, command: List[str], check: bool = True, binds: Iterable[str] = ()) -> RunShellCmdResult:
        """Run a command of the distribution in the image; return the result, of which `output` is all output."""
        result = self.container.run(ENVIRONMENT + command, binds=list(binds), fail_on_error=False)
        if check and result.exit_code:
            raise self.failure("%s failed in the image" % command[0], result.output)
        return result

    def failure(self, what: str, output: str, remedy: str = '') -> EasyBuildError:
        """Return the error for a step that failed, with the part of its output that tells why."""
        return out_of_space(output) or EasyBuildError(
            "System packages can't be added: %s:\n%s%s", what, '\n'.join(cause(output)), remedy)

    # --- before anything is copied

    def probe(self) -> None:
        """Refuse an image without apt."""
        # the first start: fails for truncated files and files of another type
        probed = self.container.run(ENVIRONMENT + sh_command('probe-system.sh', *DIRECTORIES))
        lines = probed.output.splitlines()
        found = [line.split(' ', 1) for line in lines if ' ' in line]
        self.system = ([value for key, value in found if key == 'name'] + ['unknown'])[0]
        self.directories = [value for key, value in found if key == 'directory' and value in DIRECTORIES]
        programs = [value for key, value in found if key == 'program']
        missing = [name for name in ('apt-get', 'dpkg', 'dpkg-status', 'perl', 'tar') if name not in programs]
        if not missing:
            return
        other = [name for name in ('zypper', 'dnf', 'microdnf', 'yum', 'apk') if name in programs]
        why = "it has %s, not apt" % other[0] if other and 'apt-get' in missing else "it lacks %s" % ', '.join(missing)
        raise EasyBuildError("System packages can't be added to this image (%s): %s. %s", self.system, why, WITHOUT_APT)

    def update(self) -> str:
        """Get the lists of packages; return what apt says."""
        output: str = self.command(['apt-get'] + self.apt + ['update'], check=False).output
        # apt-get succeeds if nothing could be fetched
        if not any('_Packages' in name for name in os.listdir(os.path.join(self.folder, 'lists'))):
            lines = [line for line in output.splitlines() if line.startswith(('E:', 'W:', 'Err:'))]
            remedy = "\nIs there a network here, and a proxy (http_proxy) if it needs one?" if lines else \
                "\nThe image has no sources for apt. Write a sources.list for %s, then " \
                "export EBSIF_INSTALL_BIND=/path/sources.list:/etc/apt/sources.list" % self.system
            raise self.failure("the package lists can't be fetched", '\n'.join(lines or output.splitlines()), remedy)
        return output

    def installed_packages(self) -> List[str]:
        """Return the names of the packages of the image, held ones as well."""
        lines = self.command(['dpkg-query', '--show', '--showformat', '${db:Status-Abbrev} ${Package}\\n']).output
        return re.findall(r'^.i. (\S+)$', lines, re.MULTILINE)

    def apt_get(self, *options: str) -> List[str]:
        """
        Return the command that installs what was asked for.

        `simulate` has refused changes of the image's packages that aren't allowed. Those that are may be of older
        versions, or held, as packages of NVIDIA's images are.
        """
        return ['apt-get'] + self.apt + ['--yes', '--allow-downgrades', '--allow-change-held-packages', 'install'] + \
            list(options) + ['--'] + self.asked

    def simulate(self, update: str) -> Changes:
        """Return what would be installed; refuse names that apt doesn't know, and changes of the image's packages."""
        result = self.command(self.apt_get('--simulate'), check=False)
        output = result.output
        changed = re.findall(r'^Inst (\S+) (?:\[(\S+)\] )?\((\S+)', output, re.MULTILINE)
        names = re.findall(r"^E: (?:Unable to locate package |Package '|Couldn't find any package by (?:glob|regex) ')"
                           r"([^\s']+)", output, re.MULTILINE)
        asked = system_names(self.asked)
        if result.exit_code:
            # apt takes these for patterns if there is no package of that name
            names += [name for name in asked if re.search(r'[.+]', name)]
        else:
            # apt has taken other packages for them
            names += set(asked).difference(self.installed, (name for name, _, _ in changed))
        problems = self.unknown(output, names)
        if problems:
            failed = [line for line in update.splitlines() if line.startswith(('W: Failed', 'E: Failed'))]
            raise EasyBuildError(SYSTEM_PACKAGES + "%s", '\n'.join(problems + failed[:5]))
        if result.exit_code:
            raise self.failure("apt can't install them", output)
        changes = Changes({}, {})
        for name, old, new in changed:
            if old:
                changes.upgraded[name] = [old, new]
            else:
                changes.added[name] = new
        refused = sorted(set(changes.upgraded) - set(self.wanted.allow_upgrade))
        removed = re.findall(r'^Remv (\S+)', output, re.MULTILINE)
        if refused or removed:
            raise EasyBuildError(SYSTEM_PACKAGES + "that would change packages of the image: %s",
                                 self.refusal(changes, refused, removed))
        return changes

    def unknown(self, output: str, names: Iterable[str]) -> List[str]:
        """Return a line for each of these names that isn't a package, and for each version that isn't there."""
        versions = re.findall(r"^E: Version '(\S+)' for '(\S+)' was not found", output, re.MULTILINE)
        known: List[str] = []
        if names:
            known = self.command(['apt-cache'] + self.apt + ['pkgnames']).output.split()
        lines = [self.no_package(name, known, output) for name in sorted(set(names).difference(known))]
        for version, name in versions:
            policy = self.command(['apt-cache'] + self.apt + ['policy', '--', name]).output
            there = re.findall(r'^ +(?:\*\*\* )?(\S*\d\S*) \d+$', policy, re.MULTILINE)
            lines.append("%s has no version %s any more; there is %s" % (name, version, ', '.join(there) or 'none'))
        return lines

    def no_package(self, name: str, known: List[str], output: str) -> str:
        """Say that a name isn't a package in apt's sources, and which packages may be meant."""
        providers = self.providers(name)
        if providers:
            return "'%s' is only a name that other packages provide: choose %s" % (name, ' or '.join(providers))
        text = "no package '%s' in the sources of this image (%s)" % (name, self.system)
        others = re.search(r'^Package %s is not available.*\n(?:\S.*\n)*?However.* replace it:\n +(.+)'
                           % re.escape(name), output, re.MULTILINE)
        if others:
            return "%s; these replace it: %s" % (text, ', '.join(others.group(1).split()))
        similar = difflib.get_close_matches(name, known, 3, 0.75)
        return "%s; did you mean %s?" % (text, ', '.join(similar)) if similar else text

    def providers(self, name: str) -> List[str]:
        """Return the packages that provide a name of apt's, which doesn't say so if there is only one."""
        output = self.command(['apt-cache'] + self.apt + ['showpkg', '--', name], check=False).output
        return sorted(set(re.findall(r'^(\S+) ', output.partition('Reverse Provides:')[2], re.MULTILINE)))

    def refusal(self, changes: Changes, refused: List[str], removed: List[str]) -> str:
        """Return what would be changed, and how to allow it."""
        what = ["%s %s -> %s" % (name, *changes.upgraded[name]) for name in refused]
        text = ', '.join(what + ["%s would be removed" % name for name in removed])
        if removed:
            return text + ". This can't be allowed: take an image that has these packages."
        if set(refused).difference(system_names(self.asked)):
            text += ". The archive only has versions that need these"
        return "%s. To allow it (in an easyconfig, 'allow_upgrade': %s):%s" % (
            text, refused, remedies.line('--allow-upgrade', *refused))

    # --- the installation

    def copy(self, changes: Changes) -> None:
        """Copy the system directories of the image, so that they can be written to."""
        arguments = [self.root] + self.directories + ['--'] + sorted(changes.upgraded)
        result = self.command(sh_command('copy-system.sh', *arguments), check=False)
        if result.exit_code:
            raise self.failure("the image's system directories can't be copied", result.output)

    def install(self) -> None:
        """Let apt install the packages in the copies, as if by root."""
        program = os.path.join(self.folder, 'as-root.pl')
        copy_file(os.path.join(FILES, 'share', 'ebsif', 'as-root.pl'), program)
        done = self.command(['perl', program] + self.apt_get(), check=False, binds=self.binds)
        if done.exit_code:
            raise self.failure("the installation failed", done.output, self.closed(done.output))
        audit = self.command(['perl', program, 'dpkg', '--audit'], binds=self.binds).output.strip()
        if audit:
            raise self.failure("some packages are not configured", audit)

    def closed(self, output: str) -> str:
        """Return what to do if a package has files where none can be added."""
        found = re.search(r"'\./([^/'\n]+)[^'\n]*'.*: Read-only file system", output)
        if not found:
            return ''
        return "\nPackages can't have files in /%s, only in %s. Look for it on PyPI or as a module of this machine, " \
            "or take an image that has it." % (found.group(1), ', '.join('/' + name for name in self.directories))

    @property
    def binds(self) -> List[str]:
        """The copies in the place of the image's directories."""
        return ['%s:/%s' % (escape_bind(self.path(name)), name) for name in self.directories + ['run']]

    def listed(self, changes: Changes) -> List[str]:
        """Return the paths that the packages have according to dpkg."""
        names = sorted(list(changes.added) + list(changes.upgraded))
        output = self.command(['dpkg-query', '--listfiles', '--'] + names, binds=self.binds).output
        return [line[1:] for line in output.splitlines() if line.startswith('/')]

    def digests(self) -> Dict[str, str]:
        """Return the SHA256 of the packages that were fetched, by their name."""
        found = {}
        for name in os.listdir(self.packages):
            if name.endswith('.deb'):
                with open_written(os.path.join(self.packages, name), self.folder, ANY_SIZE) as file:
                    found[name.split('_')[0]] = sha256_of(file)
        return found
