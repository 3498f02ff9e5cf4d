##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
The Python packages that an interpreter in the container sees.
"""
import json
import re

from easybuild.tools.build_log import EasyBuildError

USER_SOFTWARE = '/user-software'


class ContainerPackages(dict):
    """Packages by their normal name: (name, version, directory in the container)."""

    @classmethod
    def from_output(cls, text):
        """Return the packages that share/ebsif/installed-packages.py printed."""
        packages = cls()
        for name, version, directory in json.loads(text):
            # the first on sys.path is the one that is imported
            packages.setdefault(normal_name(name), (name, version, directory))
        return packages

    def select(self, wanted):
        """Return those packages for whose normal name wanted(name) is true."""
        return ContainerPackages((name, self[name]) for name in self if wanted(name))

    def in_user_software(self, name):
        """Tell whether a package is one of user software, not of the image."""
        return self[name][2].startswith(USER_SOFTWARE + '/')

    @property
    def pins(self):
        """The packages as requirement lines, sorted."""
        return ['%s==%s' % self[name][:2] for name in sorted(self)]


def normal_name(name):
    """Return the normal form of the name of a Python package (PEP 503)."""
    return re.sub(r'[-_.]+', '-', name).lower()


def check_pip(version):
    """
    Stop unless pip is that of the venv.

    Parameters
    ----------
    version : str
        What `pip --version` printed.

    Raises
    ------
    EasyBuildError
        If that pip lies elsewhere, and would install elsewhere.
    """
    if ' from %s/' % USER_SOFTWARE not in version:
        raise EasyBuildError("The pip of the venv is not in %s but here: %s", USER_SOFTWARE, version.strip())
