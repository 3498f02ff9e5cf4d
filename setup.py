"""Find the packages: pyproject.toml, which has all else, can't say that some are part of EasyBuild's namespace."""

from setuptools import find_namespace_packages, setup

EASYBUILD = {"easybuild.easyblocks.generic": "easyblocks/generic", "easybuild.easyconfigs": "easyconfigs"}

packages = find_namespace_packages("generator")
for name, folder in EASYBUILD.items():
    packages += [name, *(f"{name}.{part}" for part in find_namespace_packages(folder))]
setup(packages=packages)
