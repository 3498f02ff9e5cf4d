##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
The Python packages that an interpreter in the container sees.
"""
import re
from typing import Any, Callable, Collection, Dict, Iterable, List, NamedTuple, Optional, Tuple

from easybuild.tools.build_log import EasyBuildError

from .literals import literal
from .sitevalues import GPU_KINDS
from .values import USER_SOFTWARE, normal_name
from .written import UnfitError, escape, is_for_pip, is_package

SHOWN = 60  # characters of what others wrote

# What builds packages. Until pip 25.3, PIP_CONSTRAINT also applies to build requirements, so users' pip gets no
# constraints for these; neither do their programs become commands of the module.
BUILD_TOOLS = ('cmake', 'cython', 'flit-core', 'hatchling', 'maturin', 'meson', 'meson-python', 'ninja', 'pip',
               'poetry-core', 'pybind11', 'scikit-build', 'scikit-build-core', 'setuptools', 'setuptools-rust',
               'setuptools-scm', 'wheel')

# Packages for a kind of GPU, by their names.
GPU_PACKAGES = {
    # NVIDIA's wheels, most of which have the version in their names until CUDA 12 (nvidia-cublas-cu12, nvidia-cublas),
    # JAX's (jax-cuda12-plugin), and others with CUDA in their names (cupy-cuda12x, cudf-cu12)
    'cuda': re.compile(r"""(
        .+-cu\d\d\d? | .+-cuda\d\d\d?x? | jax-cuda\d+-(plugin|pjrt) |
        cuda-(bindings|core|pathfinder|python|toolkit) |
        nvidia-(cublas|cuda-.+|cudnn|cufft|cufile|curand|cusolver|cusparse|nvjitlink|nvjpeg|nvshmem|nvtx|nvvm|npp)
        )\Z""", re.VERBOSE),
    # AMD's (rocm-sdk-core, amdsmi), and other packages with ROCm in their names (jax-rocm7-plugin)
    'rocm': re.compile(r'(.+-rocm[\d-]*|jax-rocm\d+-(plugin|pjrt)|rocm-sdk-.+|amdsmi)\Z'),
}
# Local labels of versions that are built for a kind of GPU.
GPU_LABEL = re.compile(r'\+(%s)(?:(\d+)\.(\d+)|(\d+))' % '|'.join(kind.label for kind in GPU_KINDS.values()))
# XGBoost's wheels need NCCL on every machine, and do without it: https://xgboost.readthedocs.io/en/stable/install.html
NCCL_PACKAGE = re.compile(r'nvidia-nccl-cu\d+\Z')
XGBOOST = 'xgboost'


class Need(NamedTuple):
    """
    What an installed package requires of another one (normalized name): any version if `versions` is empty.

    It fits if the version that is installed is one of them; `fits_hidden` if those that it hides are, too.
    """

    name: str
    on: str
    versions: str
    fits: bool
    fits_hidden: bool = True


# What installed-packages.py prints, and the types of the values.
DESCRIPTION = {'version': str, 'executable': str, 'prefix': str, 'base_prefix': str, 'purelib': str,
               'environment': dict, 'missing': list, 'packages': list, 'compiled': list, 'needs': list}

# A description that was checked.
Description = Dict[str, Any]

# Versions that a package requires, as pip's library prints them.
VERSIONS = re.compile(r'[A-Za-z0-9_.+!*<>=~, -]*\Z')


class InstalledPackages(Dict[str, Tuple[str, str, str]]):
    """
    Packages by normalized name: (name, version, directory in the container).

    Only those whose names and versions fit: any package may have any text in its metadata, and any Python of an image
    may print anything.
    """

    # PYTHONPATH of the interpreter
    python_path = ''
    # the directory in the container where pip installs packages for the interpreter
    purelib = ''
    # normalized names of packages with compiled parts, and what packages require of each other
    compiled: Collection[str] = ()
    needs: Collection[Need] = ()
    # names and versions that don't fit, escaped
    left_out: Collection[str] = ()

    @staticmethod
    def read(text: str) -> Description:
        """Return the output of share/ebsif/installed-packages.py; UnfitError if something else was printed."""
        try:
            seen = literal(text)
        except ValueError:
            raise UnfitError("something else was printed than a description of Python: %s" % shortened(text))
        return checked_description(seen)

    @classmethod
    def from_output(cls, text: str) -> 'InstalledPackages':
        """Return the packages listed by share/ebsif/installed-packages.py."""
        return cls.from_listing(cls.read(text))

    @classmethod
    def from_listing(cls, seen: object) -> 'InstalledPackages':
        """Return the packages in what that program has found; UnfitError if it is something else."""
        described = checked_description(seen)
        packages = cls()
        packages.python_path = described['environment']['PYTHONPATH']
        packages.purelib = described['purelib']
        packages.left_out = []
        for name, version, directory in described['packages']:
            if is_package(name, version) and directory.isprintable():
                # Python imports the first one on sys.path
                packages.setdefault(normal_name(name), (name, version, directory))
            else:
                packages.left_out.append(shortened('%s %s' % (name, version)))
        packages.compiled = [name for name in described['compiled'] if is_package(name, '1')]
        packages.needs = [Need(*one) for one in described['needs']
                          if is_package(one[0], '1') and is_package(one[1], '1') and VERSIONS.match(one[2])]
        return packages

    def warning(self) -> str:
        """Return what to say of packages that are left out; empty if there are none."""
        if not self.left_out:
            return ''
        return "Packages are left out of the module and its record, because their names or versions have characters " \
            "that no package has. Whoever made them may want to run commands: %s" % ', '.join(self.left_out)

    def select(self, wanted: Callable[[str], bool]) -> 'InstalledPackages':
        """Return the packages whose normalized name satisfies a condition."""
        chosen = InstalledPackages((name, self[name]) for name in self if wanted(name))
        chosen.compiled, chosen.needs, chosen.left_out = self.compiled, self.needs, self.left_out
        return chosen

    def in_user_software(self, name: str) -> bool:
        """Return whether a package belongs to user software, not to the image."""
        return self[name][2].startswith(USER_SOFTWARE + '/')

    def bound(self, listed: Collection[str] = ()) -> Dict[str, str]:
        """
        Return which packages belong to the machine, and why, by normalized name (S001-19).

        Others are pure Python: another version of them can't be built for the wrong machine. `listed` are the names of
        those that the site keeps as well.
        """
        reasons = {}
        for name, (_, version, _) in self.items():
            label = version.partition('+')[2]
            if built_for(name, version, self) or label:
                reasons[name] = "built for this machine%s" % (label and " (+%s)" % label)
            elif name in self.compiled:
                reasons[name] = "compiled"
            elif name in map(normal_name, listed):
                reasons[name] = "kept by the site ('keep_packages')"
        return reasons

    def needed_by(self, names: Collection[str]) -> List[Need]:
        """Return what some packages, by normalized name, require of the others that are installed."""
        return [need for need in self.needs if normal_name(need.name) in names and need.on not in names]

    def replaced_in(self, image: 'InstalledPackages') -> List[Dict[str, Any]]:
        """
        Return the packages of the image that user software hides with another version, for the record.

        Each has its name, both versions, and texts on what requires it: what it breaks; of the others, what in user
        software the image's version doesn't suit, and what allows both versions.
        """
        found = []
        for name in sorted(image):
            if name == 'pip' or name not in self or not self.in_user_software(name) or self[name][1] == image[name][1]:
                continue
            needs = [need for need in self.needs if need.on == name and need.versions]
            fits = [need for need in needs if need.fits]
            wanted = [need for need in fits
                      if not need.fits_hidden and self.in_user_software(normal_name(need.name))]
            found.append({'name': self[name][0], 'version': self[name][1], 'image': image[name][1],
                          'breaks': [self.text_of(need) for need in needs if not need.fits],
                          'wanted': list(map(self.text_of, wanted)),
                          'affects': [self.text_of(need) for need in fits if need not in wanted]})
        return found

    def text_of(self, need: Need) -> str:
        """Return what a package requires in words."""
        return "%s %s needs %s%s" % (need.name, self[normal_name(need.name)][1], need.on, need.versions)

    def other_than(self, wanted: Dict[str, str]) -> List[str]:
        """Return which packages are missing or have another version than wanted, one clause for each."""
        texts = []
        for name, version in sorted(wanted.items()):
            if normal_name(name) not in self:
                texts.append("no %s, not %s %s" % (name, name, version))
                continue
            found = self[normal_name(name)][1]
            if not is_version(found, version):
                texts.append("%s %s, not %s %s" % (name, found, name, version))
        return texts

    def added_since(self, before: 'InstalledPackages') -> 'InstalledPackages':
        """Return the packages of user software that are new or have changed."""
        return self.select(lambda name: self.in_user_software(name) and self[name] != before.get(name))

    def for_other_gpu(self, image: 'InstalledPackages') -> List[str]:
        """
        Return which of these packages are built for other GPU software than torch in the image (S000-20).

        Kind and version are in the local label (torch 2.7.1+rocm6.2.4) or, without a version, in the name.
        """
        kind, version = gpu_label(image['torch'][1]) if 'torch' in image else (None, None)
        texts = []
        for name, (_, found, _) in sorted(self.items()):
            other = built_for(name, found, image)
            other_version = gpu_label(found)[1]
            wrong = kind and other and (other != kind or (other_version and version and other_version != version))
            if wrong and name != 'torch':
                texts.append("%s %s, but the torch it is used with is %s" % (name, found, image['torch'][1]))
        return texts

    @property
    def pins(self) -> List[str]:
        """The packages as requirement lines, sorted."""
        return ['%s==%s' % self[name][:2] for name in sorted(self)]

    def constraints(self) -> List[str]:
        """Return the packages as lines for a constraints file of pip, sorted."""
        return constraint_lines(self[name][:2] for name in sorted(self))


def checked_description(seen: object) -> Description:
    """Return what installed-packages.py has printed if its values have the right types; UnfitError otherwise."""
    def is_list(values: Iterable[object], *kinds: type) -> bool:
        return all(isinstance(one, (list, tuple)) and list(map(type, one)) == list(kinds) for one in values)

    if not isinstance(seen, dict) or any(not isinstance(seen.get(key), kind) for key, kind in DESCRIPTION.items()):
        raise UnfitError("something else was printed than a description of Python: %s" % shortened(repr(seen)))
    texts = [seen[key] for key, kind in DESCRIPTION.items() if kind is str] + seen['missing']
    texts += [seen['environment'].get('PYTHONPATH')] + list(seen['environment'].values())
    if not all(isinstance(text, str) and text.isprintable() for text in texts) or \
            not is_list(seen['packages'], str, str, str) or not is_list(seen['needs'], str, str, str, bool, bool):
        raise UnfitError("the description of Python has something that isn't text of one line")
    return seen


def shortened(text: str) -> str:
    """Return the beginning of a text of others, to be printed."""
    return escape(text[:SHOWN] + ('...' if len(text) > SHOWN else ''))


def is_version(found: str, wanted: str) -> bool:
    """
    Return whether a version is the wanted one, which may leave out the last numbers and the local label.

    2.10.0+rocm7.0 and 2.10.1 are 2.10, but 2.7.10 is not 2.7.1, and 0.10.1+rocm630 is not 0.10.1+rocm624.
    """
    return found == wanted or bool(re.match(re.escape(wanted) + r'(\.[0-9]+)*(\+.*)?\Z', found))


def constraint_lines(packages: Iterable[Tuple[str, Optional[str]]]) -> List[str]:
    """
    Return packages (name, version) as lines for a constraints file, without lines that pip can't parse.

    A single such line makes pip refuse the whole file (since pip 24.1). pip could replace packages that are left out;
    Pip.check_nothing_replaced checks that afterwards.
    """
    return ['%s==%s' % one for one in packages if is_for_pip(*one)]


def gpu_label(version: str) -> Tuple[Optional[str], Optional[str]]:
    """
    Return kind of GPU ('cpu' for none) and version (major.minor) of its software in the local label of a version.

    A missing part is None.
    """
    found = GPU_LABEL.search(version)
    if not found:
        return ('cpu', None) if version.endswith('+cpu') else (None, None)
    label, major, minor, digits = found.groups()
    if digits:
        # rocm624 is 6.2.4 and cu126 is 12.6; cu12 leaves the minor version open
        length = 2 if digits.startswith('1') else 1
        major, minor = digits[:length], digits[length:length + 1]
    (kind,) = [kind for kind, one in GPU_KINDS.items() if one.label == label]
    return kind, '%s.%s' % (major, minor) if minor else None


def gpu_of(packages: InstalledPackages, gpu: Optional[str] = None) -> Optional[str]:
    """Return the kind of GPU that torch in packages is for, empty if for none; the given one if that isn't known."""
    kind, _ = gpu_label(packages['torch'][1]) if 'torch' in packages else (None, None)
    return gpu if kind is None else '' if kind == 'cpu' else kind


def built_for(name: str, version: str, names: Collection[str] = ()) -> Optional[str]:
    """
    Return the kind of GPU that a package is built for ('cpu' for none), None if it isn't known.

    `names` are the packages that Python sees; all names are normalized.
    """
    kind, _ = gpu_label(version)
    if kind or (XGBOOST in names and NCCL_PACKAGE.match(name)):
        return kind
    return next((kind for kind, pattern in GPU_PACKAGES.items() if pattern.match(name)), None)


def pip_version(packages: InstalledPackages) -> str:
    """
    Return the version of the pip that the venv's Python sees, after checking that it installs into user software.

    The venv may use the image's pip: it installs where the Python that runs it has its packages (S000-14).
    """
    if 'pip' not in packages:
        raise EasyBuildError("The venv's Python sees no pip, neither its own nor the image's.")
    if not packages.purelib.startswith(USER_SOFTWARE + '/'):
        raise EasyBuildError("pip would not install into %s but here: %s. Is the venv's pyvenv.cfg still there?",
                             USER_SOFTWARE, packages.purelib)
    return packages['pip'][1]
