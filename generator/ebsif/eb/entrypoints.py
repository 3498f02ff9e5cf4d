"""
The easyblocks as plug-ins: EasyBuild 5.3 or newer imports this module if it is started with --use-entrypoints.

EasyBuild knows the easyblocks that are registered meanwhile. Nothing else imports this module: earlier versions of
EasyBuild have no entry points, and find the easyblocks by their files.
"""

from easybuild.easyblocks.generic.containerinstall import ContainerInstall
from easybuild.easyblocks.generic.containervenv import ContainerVenv
from easybuild.tools.entrypoints import EntrypointEasyblock

for easyblock in (ContainerInstall, ContainerVenv):
    EntrypointEasyblock()(easyblock)
