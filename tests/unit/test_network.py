"""What images can use of a site's network."""

import pytest
from ebsif.catalogue import reading, site
from ebsif.images import inspection
from ebsif.installed.health import hardware
from ebsif.report.findings import NOTE

LUMI = site.read("lumi")
CONTAINERS = reading.read(LUMI, site.SITES / "lumi")


def findings(name="image.sif", profile=LUMI, **values):
    """Return the findings about an image by part."""
    found = inspection.Inspection(path=f"/images/{name}", resolved=f"/images/{name}", size=1, **values)
    return {finding.subject: finding for finding in hardware.examine_image(found, profile, CONTAINERS)}


@pytest.mark.parametrize(("libraries", "text", "note"), [
    (["/usr/lib/libmpi.so.12"], "ABI of MPICH, /usr/lib/libmpi.so.12", False),
    (["/usr/lib/libmpi.so.12.3.1"], "ABI of MPICH", False),
    (["/usr/lib/libmpi.so.40.40.1"], "Open MPI, /usr/lib/libmpi.so.40.40.1: an MPI with the ABI of MPICH can't", True),
    (["/usr/lib/libmpi.so.12", "/opt/ompi/libmpi.so.40"], "two in the image", True),
    (["/usr/lib/libmpi.so.120"], "none in the image", True),
    ([], "none in the image", True),
])
def test_the_abi_of_mpi(libraries, text, note):
    """S001-14 (in part): read from the library's name."""
    finding = findings(libraries=libraries)["MPI"]
    assert text in finding.text
    assert (finding.level == NOTE) == note


def test_provider_and_plugin():
    """S001-14 (in part): those in the image, and those that the site provides."""
    libraries = ["/opt/libfabric/lib/libfabric.so.1"]
    parts = findings(libraries=libraries, components={"libfabric": "1.22.0"}, plugins=["/opt/lib/librccl-net.so"])
    assert parts["libfabric"].text == (
        "1.22.0, /opt/libfabric/lib/libfabric.so.1; for Slingshot /usr/lib64/libcxi.so.1 of lumi")
    assert parts["RCCL plugin"].text == "/opt/lib/librccl-net.so"
    local = findings(libraries=libraries, profile=site.read("local"))
    assert "no libcxi, so it can't use Slingshot" in local["libfabric"].text
    # no GPUs, no plugin
    assert list(local) == ["image", "libfabric", "MPI"]


def test_an_image_of_the_site():
    """Recognized by its file name; nothing is promised for other images."""
    one = CONTAINERS[-1]
    assert one.module in findings(one.file_name)["image"].text
    other = findings("julia.sif")["image"]
    assert other.level == NOTE
    assert "not in the catalogue of lumi" in other.text
