"""Conversions to SIF files: that they end with eb, and leave nothing that the next one could take for its own."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from easybuild.easyblocks.generic.container.conversion import Conversion
from easybuild.tools.build_log import EasyBuildError
from support import heed_signals

pytestmark = pytest.mark.usefixtures("configuration")

EB = """\
import sys
from easybuild.tools.options import set_up_configuration
set_up_configuration(args=["--allow-use-as-root-and-accept-consequences"], silent=True)
from easybuild.easyblocks.generic.container.conversion import Conversion
class Runtime:
    path = sys.argv[1]
Conversion(Runtime, sys.argv[2]).run("x.sif", "oci:x")
"""


class Runtime:
    """A program in the place of the runtime, which does what a file says."""

    def __init__(self, folder, text):
        self.path = str(folder / "runtime")
        self.started = folder / "started"
        Path(self.path).write_text(f"#!/bin/sh\necho $$ >'{self.started}'\n{text}\n")
        Path(self.path).chmod(0o755)


def wait_for(condition, limit=120):
    """Wait until a condition holds."""
    until = time.monotonic() + limit
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.05)


def is_gone(number):
    """Return whether a process has ended, perhaps still known to a parent that doesn't ask."""
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGHUP])
def test_a_conversion_ends_with_eb(tmp_path, number):
    """R-10: however eb ends, the runtime doesn't outlive it, and the next eb removes what is left of both."""
    place = tmp_path / "x.sif.partial-0"
    place.mkdir()
    runtime = Runtime(tmp_path, 'echo cut >"$3"; exec sleep 300')
    with subprocess.Popen([sys.executable, "-c", EB, runtime.path, place], stderr=subprocess.PIPE, text=True,
                          preexec_fn=heed_signals) as eb:
        wait_for(lambda: runtime.started.exists() and runtime.started.read_text() or eb.poll() is not None)
        eb.send_signal(number)
        said = eb.communicate(timeout=60)[1]
    assert runtime.started.exists(), said
    wait_for(lambda: is_gone(runtime.started.read_text().strip()))
    assert len(list(place.iterdir())) == 1
    conversion = Conversion(Runtime(tmp_path, 'echo image >"$3"'), str(place))
    conversion.run("x.sif", "oci:x")
    assert Path(conversion.result).read_text() == "image\n"
    assert [str(path) for path in place.iterdir()] == [conversion.folder]


def test_each_process_has_its_own_directory(tmp_path):
    """R-10: a conversion that another process may still make is left alone; what fails leaves nothing."""
    place = tmp_path / "x.sif.partial-0"
    (place / "conversion-other").mkdir(parents=True)
    (place / "conversion-other/image.sif").touch()
    with pytest.raises(EasyBuildError, match=r"can't convert the image with (?s:.*)  no way \ufffd\n"):
        Conversion(Runtime(tmp_path, 'echo x >"$3"; printf "no way \\303"; exit 1'), str(place)).run("x.sif", "oci:x")
    assert [path.name for path in place.rglob("*")] == ["conversion-other", "image.sif"]
