"""EasyBuild's framework in the process of the tests."""

import os
import tempfile

import pytest
from easybuild.tools.config import BuildOptions
from easybuild.tools.options import set_up_configuration
from ebsif.eb import framework


@pytest.fixture(scope="module")
def configuration(tmp_path_factory):
    """EasyBuild's configuration as eb sets it up at start, without a modules tool; afterwards it is as before."""
    prefix = tmp_path_factory.mktemp("eb")
    options = [f"--prefix={prefix}", "--allow-use-as-root-and-accept-consequences"]
    before, tempdir = dict(os.environ), tempfile.tempdir
    # EasyBuild keeps its configuration, and what depends on it, as the only objects of their classes
    objects = type(BuildOptions)._instances
    earlier = dict(objects)
    set_up_configuration(args=options, silent=True)
    # this set the process's temporary directory to a private one: undo it for the tests that share the process
    os.environ.clear()
    os.environ.update(before)
    tempfile.tempdir = tempdir
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("easybuild.tools.modules.avail_modules_tools", dict)
        yield
    objects.clear()
    objects.update(earlier)
    framework.session.cache_clear()
