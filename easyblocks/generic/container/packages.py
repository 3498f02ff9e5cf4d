##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
The Python packages that an interpreter in the container sees.
"""
import ast
import re

from easybuild.tools.build_log import EasyBuildError

from .texts import normal_name

USER_SOFTWARE = '/user-software'

# Names (PEP 508) and versions (PEP 440, appendix B) that pip can parse. Linux distributions give some of their Python
# packages other versions, like '2.22.1ubuntu1'.
NAME = re.compile(r'[a-z0-9](?:[a-z0-9._-]*[a-z0-9])?\Z', re.IGNORECASE)
VERSION = re.compile(r"""
    v?(?:[0-9]+!)?[0-9]+(?:\.[0-9]+)*                              # epoch, release
    (?:[-_.]?(?:a|b|c|rc|alpha|beta|pre|preview)[-_.]?[0-9]*)?     # pre-release
    (?:-[0-9]+|[-_.]?(?:post|rev|r)[-_.]?[0-9]*)?                  # post-release
    (?:[-_.]?dev[-_.]?[0-9]*)?                                     # development release
    (?:\+[a-z0-9]+(?:[-_.][a-z0-9]+)*)?\Z                          # local version
    """, re.IGNORECASE | re.VERBOSE)


# Packages of CUDA: NVIDIA's wheels, most of which have the version in their names until CUDA 12 (nvidia-cublas-cu12,
# nvidia-cublas), JAX's (jax-cuda12-plugin), and others with CUDA in their names (cupy-cuda12x, cudf-cu12).
CUDA_PACKAGE = re.compile(r"""(
    .+-cu\d\d\d? | .+-cuda\d\d\d?x? | jax-cuda\d+-(plugin|pjrt) | cuda-(bindings|core|pathfinder|python|toolkit) |
    nvidia-(cublas|cuda-.+|cudnn|cufft|cufile|curand|cusolver|cusparse|nvjitlink|nvjpeg|nvshmem|nvtx|nvvm|npp)
    )\Z""", re.VERBOSE)
# Packages of ROCm: AMD's (rocm-sdk-core, amdsmi), and those of others with ROCm in their names (jax-rocm7-plugin).
ROCM_PACKAGE = re.compile(r'(.+-rocm[\d-]*|jax-rocm\d+-(plugin|pjrt)|rocm-sdk-.+|amdsmi)\Z')
# XGBoost's wheels need NCCL on every machine, and do without it: https://xgboost.readthedocs.io/en/stable/install.html
NCCL_PACKAGE = re.compile(r'nvidia-nccl-cu\d+\Z')
XGBOOST = 'xgboost'


class Packages(dict):
    """
    Packages by normalized name: (name, version, directory in the container).

    Attributes
    ----------
    python_path : str
        PYTHONPATH of the interpreter.
    purelib : str
        The directory in the container where pip installs packages for the interpreter.
    """

    python_path = ''
    purelib = ''

    @staticmethod
    def read(text):
        """Parse the output of share/ebsif/installed-packages.py (dict)."""
        return ast.literal_eval(text)

    @classmethod
    def from_output(cls, text):
        """Return the packages listed by share/ebsif/installed-packages.py."""
        packages = cls()
        seen = cls.read(text)
        packages.python_path = seen['environment']['PYTHONPATH']
        packages.purelib = seen['purelib']
        for name, version, directory in seen['packages']:
            # Python imports the first one on sys.path
            packages.setdefault(normal_name(name), (name, version, directory))
        return packages

    def select(self, wanted):
        """Return the packages whose normalized name satisfies a condition (function)."""
        return Packages((name, self[name]) for name in self if wanted(name))

    def in_user_software(self, name):
        """Return whether a package belongs to user software, not to the image."""
        return self[name][2].startswith(USER_SOFTWARE + '/')

    def other_than(self, wanted):
        """
        Return which packages are missing or have another version.

        Parameters
        ----------
        wanted : dict of str
            Versions by name.

        Returns
        -------
        list of str
            One clause for each package.
        """
        texts = []
        for name, version in sorted(wanted.items()):
            _, found, _ = self.get(normal_name(name), (None, None, None))
            if found is None:
                texts.append("no %s, not %s %s" % (name, name, version))
            elif not is_version(found, version):
                texts.append("%s %s, not %s %s" % (name, found, name, version))
        return texts

    def added_since(self, before):
        """Return the packages of user software that are new or have changed."""
        return self.select(lambda name: self.in_user_software(name) and self[name] != before.get(name))

    def for_other_gpu(self, image):
        """
        Return which of these packages are built for other GPU software than torch.

        Kind and version are in the local label (torch 2.7.1+rocm6.2.4) or, without a version, in the name.

        Parameters
        ----------
        image : Packages
            All packages that the interpreter sees.

        Returns
        -------
        list of str
            One clause for each package.
        """
        torch = image.get('torch')
        kind, version = gpu_label(torch[1]) if torch else (None, None)
        if not kind:
            return []
        texts = []
        for name, (_, found, _) in sorted(self.items()):
            other, other_version = gpu_label(found)
            if not other:
                other = built_for(name, found, image)
            wrong = other and (other != kind or (other_version and version and other_version != version))
            if wrong and name != 'torch':
                texts.append("%s %s, but the torch it is used with is %s" % (name, found, torch[1]))
        return texts

    @property
    def pins(self):
        """The packages as requirement lines, sorted."""
        return ['%s==%s' % self[name][:2] for name in sorted(self)]

    @property
    def constraints(self):
        """The packages as lines for a constraints file of pip, sorted."""
        return constraint_lines(self[name][:2] for name in sorted(self))


def is_version(found, wanted):
    """
    Return whether a version is the wanted one, which may leave out the last numbers and the local label.

    2.10.0+rocm7.0 and 2.10.1 are 2.10, but 2.7.10 is not 2.7.1, and 0.10.1+rocm630 is not 0.10.1+rocm624.
    """
    return found == wanted or bool(re.match(re.escape(wanted) + r'(\.[0-9]+)*(\+.*)?\Z', found))


def constraint_lines(packages):
    """
    Return packages as lines for a constraints file, without those that pip can't parse.

    A single such line makes pip refuse the whole file (since pip 24.1). pip could replace packages that are left out;
    Pip.check_nothing_replaced checks that afterwards.

    Parameters
    ----------
    packages : iterable of tuple
        (name, version) of each; None for a package without a version.

    Returns
    -------
    list of str
    """
    return ['%s==%s' % (name, version) for name, version in packages
            if NAME.match(name) and VERSION.match(version or '')]


def gpu_label(version):
    """
    Return kind and version of the GPU software in the local label of a version.

    Returns
    -------
    tuple
        'rocm', 'cu' or 'cpu', and major.minor (both str); None for a missing part.
    """
    label = re.search(r'\+(rocm|cu)(?:(\d+)\.(\d+)|(\d+))', version)
    if not label:
        return ('cpu', None) if version.endswith('+cpu') else (None, None)
    kind, major, minor, digits = label.groups()
    if digits:
        # rocm624 is 6.2.4 and cu126 is 12.6; cu12 leaves the minor version open
        length = 2 if kind == 'cu' and digits.startswith('1') else 1
        major, minor = digits[:length], digits[length:length + 1]
    return kind, '%s.%s' % (major, minor) if minor else None


def built_for(name, version, names=()):
    """
    Return the GPU software that a package is built for.

    Parameters
    ----------
    name, version : str
        Those of the package, the name normalized.
    names : container of str
        The packages that Python sees, by normalized name.

    Returns
    -------
    str
        'rocm', 'cu' or 'cpu'; None for a package that isn't built for one, or that doesn't say.
    """
    kind, _ = gpu_label(version)
    if not kind and CUDA_PACKAGE.match(name) and not (XGBOOST in names and NCCL_PACKAGE.match(name)):
        kind = 'cu'
    return kind or ('rocm' if ROCM_PACKAGE.match(name) else None)


def artifacts_in(items):
    """
    Return which files pip installs, as far as it says their SHA256.

    Parameters
    ----------
    items : list of dict
        What pip installs, from its report.

    Returns
    -------
    dict of dict
        The name of the file and its SHA256, by normalized package name.
    """
    found = {}
    for item in items:
        download = item['download_info']
        archive = download.get('archive_info', {})
        digest = archive.get('hashes', {}).get('sha256') or archive.get('hash', '').replace('sha256=', '')
        if digest:
            # not the whole URL, which may contain a password
            name = download['url'].split('#')[0].split('?')[0].rstrip('/').rsplit('/', 1)[-1]
            found[normal_name(item['metadata']['name'])] = {'file': name, 'sha256': digest}
    return found


def pip_version(packages):
    """
    Return the version of pip (str), after checking that it installs into user software (S000-14).

    The venv may use the image's pip: it installs where the Python that runs it has its packages.

    Parameters
    ----------
    packages : Packages
        The packages that the venv's Python sees.

    Raises
    ------
    EasyBuildError
        If there is no pip, or if it would install elsewhere.
    """
    if 'pip' not in packages:
        raise EasyBuildError("The venv's Python sees no pip, neither its own nor one of the image.")
    if not packages.purelib.startswith(USER_SOFTWARE + '/'):
        raise EasyBuildError("pip would not install into %s but here: %s. Is the venv's pyvenv.cfg still there?",
                             USER_SOFTWARE, packages.purelib)
    return packages['pip'][1]
