##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
What is likely to go wrong with stages, found before anything is installed.
"""
import re

from easybuild.easyblocks.generic.container.texts import normal_name

# Packages whose source imports torch while it is built. Wheels of them that fit an image's torch hardly exist.
NEEDS_TORCH = ('apex', 'causal-conv1d', 'deepspeed', 'flash-attn', 'grouped-gemm', 'mamba-ssm', 'pytorch3d',
               'torch-cluster', 'torch-scatter', 'torch-sparse', 'torch-spline-conv', 'transformer-engine', 'xformers')
# What builds without isolation commonly want to find.
BUILD_TOOLS = ('setuptools', 'wheel', 'ninja', 'packaging')

# Options and spellings whose meaning depends on the version of pip: (pattern, what to know)
PIP_DEPENDENT = (
    (r'--global-option|--build-option',
     "'--global-option' is deprecated since pip 24.2 and makes pip build from source in a way that goes away; "
     "'--config-settings' is its successor, in requirement lines since pip 23.1"),
    (r'--install-option', "'--install-option' was removed in pip 23.1"),
    (r'--config-settings?\b', "'--config-settings' in requirement lines needs pip 23.1 or newer"),
    (r'(?m)^\s*[\w.-]+\s*@\s*git\+file:|^\s*git\+git@|#egg=[\w.-]+\[',
     "this spelling of a git address is read differently, or refused, by some versions of pip"),
)


class Lint:
    """
    Looks at the stages of an installation.

    Attributes
    ----------
    findings : list of str
        What may be wrong, each naming the stage and what to do.
    """

    def __init__(self, stages, image_packages, pip_version):
        """
        Look at stages.

        Parameters
        ----------
        stages : list of Stage
        image_packages : container of str
            Normal names of the packages of the image.
        pip_version : str
            Of the pip in the venv.
        """
        self.findings = []
        available = set(image_packages)
        for stage in stages:
            names = [package_name(line) for line in stage.requirement_list if not line.split(';')[0].endswith('.whl')]
            self.check_torch(stage, names)
            self.check_build_tools(stage, names, available)
            self.check_pip(stage, pip_version)
            available.update(names)

    def check_torch(self, stage, names):
        """Packages that need torch while they are built: not isolated, and after the stage that installs torch."""
        needy = [name for name in names if name in NEEDS_TORCH and '--only-binary' not in ' '.join(stage.options)]
        if needy and 'torch' in names:
            self.findings.append(
                "stage '%s': %s is built against torch, which is in the same stage, so it may not be there yet. Put "
                "torch into an earlier stage" % (stage.name, ', '.join(needy)))
        if needy and not stage.no_build_isolation:
            self.findings.append(
                "stage '%s': %s is built against torch, but builds of this stage are isolated from it. Put it into a "
                "stage of its own with 'no_build_isolation': True" % (stage.name, ', '.join(needy)))

    def check_build_tools(self, stage, names, available):
        """Without isolation pip does not fetch what a build needs."""
        missing = [name for name in BUILD_TOOLS if name not in available]
        if stage.no_build_isolation and names and missing:
            self.findings.append(
                "stage '%s' builds without isolation, and neither the image nor an earlier stage has %s. If the build "
                "needs it, install it in an earlier stage" % (stage.name, ', '.join(missing)))

    def check_pip(self, stage, pip_version):
        """Options that mean different things to different versions of pip."""
        text = stage.requirements + '\n' + ' '.join(stage.options)
        for pattern, known in PIP_DEPENDENT:
            if re.search(pattern, text) and not stage.upgrade_pip:
                self.findings.append(
                    "stage '%s': %s. The pip here is %s; an earlier stage may install the version of pip, setuptools "
                    "and wheel that is meant" % (stage.name, known, pip_version))


def package_name(line):
    """Return the normal name of the package of a requirement line; of an address, what it says of the name."""
    egg = re.search(r'#(?:.*&)?egg=([\w.-]+)', line)
    if egg:
        return normal_name(egg.group(1))
    named = re.match(r'[A-Za-z0-9][\w.-]*(?=\s*(?:$|[\[@=<>!~; ]))', line)
    last = re.sub(r'(\.git)?(@[^/]*)?(#.*)?$', '', line.rstrip('/')).rsplit('/', 1)[-1]
    return normal_name(named.group() if named else last)
