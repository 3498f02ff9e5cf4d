##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
Find likely mistakes in stages before anything is installed.
"""
import re

from .texts import normal_name

# The name of the package at the end of a URL.
EGG = re.compile(r'#(?:.*&)?egg=([\w.-]+)')

# Packages that import torch while they are built. There are hardly any wheels of them that match an image's torch.
NEEDS_TORCH = ('apex', 'causal-conv1d', 'deepspeed', 'flash-attn', 'grouped-gemm', 'mamba-ssm', 'pytorch3d',
               'torch-cluster', 'torch-scatter', 'torch-sparse', 'torch-spline-conv', 'transformer-engine', 'xformers')
# Packages that builds without isolation commonly need.
BUILD_TOOLS = ('setuptools', 'wheel', 'ninja', 'packaging')

# Options and spellings whose meaning depends on the version of pip: (pattern, explanation)
PIP_DEPENDENT = (
    (r'--global-option|--build-option',
     "'--global-option' is deprecated since pip 24.2 and uses a way of building from source that will be removed; "
     "use '--config-settings' instead, which requirement lines support since pip 23.1"),
    (r'--install-option', "'--install-option' was removed in pip 23.1"),
    (r'--config-settings?\b', "'--config-settings' in requirement lines needs pip 23.1 or newer"),
    (r'(?m)^\s*[\w.-]+\s*@\s*git\+file:|^\s*git\+git@|#egg=[\w.-]+\[',
     "some versions of pip reject this spelling of a git URL or interpret it differently"),
)


class Lint:
    """
    Checks the stages of an installation for likely mistakes.

    Attributes
    ----------
    findings : list of str
        Warnings; each names the stage and says what to do.
    """

    def __init__(self, stages, image_packages, pip_version):
        """
        Check stages.

        Parameters
        ----------
        stages : list of Stage
        image_packages : container of str
            Normalized names of the packages of the image.
        pip_version : str
            Version of the pip in the venv.
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
        """Check that packages built against torch come after torch, in a stage without build isolation."""
        builds = [name for name in names if name in NEEDS_TORCH and '--only-binary' not in ' '.join(stage.options)]
        if builds and 'torch' in names:
            self.findings.append(
                "stage '%s': %s is built against torch, which is in the same stage, so it may not be there yet. Put "
                "torch into an earlier stage" % (stage.name, ', '.join(builds)))
        if builds and not stage.no_build_isolation:
            self.findings.append(
                "stage '%s': %s is built against torch, but builds of this stage are isolated from it. Put it into a "
                "stage of its own with 'no_build_isolation': True" % (stage.name, ', '.join(builds)))

    def check_build_tools(self, stage, names, available):
        """Check that build tools are present for builds without isolation, for which pip doesn't install them."""
        missing = [name for name in BUILD_TOOLS if name not in available]
        if stage.no_build_isolation and names and missing:
            self.findings.append(
                "stage '%s' builds without isolation, and neither the image nor an earlier stage has %s. If the build "
                "needs it, install it in an earlier stage" % (stage.name, ', '.join(missing)))

    def check_pip(self, stage, pip_version):
        """Check for options that mean different things to different versions of pip."""
        text = stage.requirements + '\n' + ' '.join(stage.options)
        for pattern, explanation in PIP_DEPENDENT:
            if re.search(pattern, text) and not stage.upgrade_pip:
                self.findings.append(
                    "stage '%s': %s. The venv has pip %s; to use another version of pip, setuptools or wheel, install "
                    "it in an earlier stage" % (stage.name, explanation, pip_version))


def package_name(line):
    """Return the normalized package name of a requirement line; for a URL, the name guessed from it."""
    egg = EGG.search(line)
    if egg:
        return normal_name(egg.group(1))
    named = re.match(r'[A-Za-z0-9][\w.-]*(?=\s*(?:$|[\[@=<>!~; ]))', line)
    last = re.sub(r'(\.git)?(@[^/]*)?(#.*)?$', '', line.rstrip('/')).rsplit('/', 1)[-1]
    return normal_name(named.group() if named else last)
