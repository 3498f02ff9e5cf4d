"""Images that have constraints for pip and uv of their own, as NVIDIA's have (PIP_CONSTRAINT)."""

import pytest
from parts import Installed, example_site, wheel_settings
from support import make_wheel

PLAIN = "easyblock = 'ContainerInstall'\n" + Installed.TEXT.replace("venv_name = 'pytorch'\n", "")
CONSTRAINTS = ["PIP_BUILD_CONSTRAINT", "PIP_CONSTRAINT", "UV_CONSTRAINT", "UV_OVERRIDE"]


@pytest.fixture(scope="module")
def place(tmp_path_factory, small_image):
    """A site whose image pins its packages, with a module for user software and one without."""
    site = example_site(tmp_path_factory.mktemp("constraints"), small_image("constraints"))
    packages = site.prefix / "wheels"
    packages.mkdir()
    for name in ("pure", "native"):
        make_wheel(packages, name, "2.0")
    make_wheel(packages, "wants", requires=["pure >= 2"])
    said = site.eb(site.easyconfig(Installed.TEXT), site.easyconfig(PLAIN, suffix="-plain"))
    for name in CONSTRAINTS:
        assert said.stdout.count(f"the image sets {name}=/etc/pip/constraint.txt, which is not used") == 2
    return site, packages


def extend(place, name, *arguments):
    """Run `ebsif extend` for the module; return its standard output."""
    site, packages = place
    command = ["ebsif", "extend", site.root(), "--name", name, "--date", "1", *arguments]
    command += ["--", *site.eb_options]
    return site.run(command, **wheel_settings(packages)).stdout


def test_they_are_recorded(place):
    """K-04: the record and the help of the module say that the image has constraints."""
    site = place[0]
    for suffix in ("", "-plain"):
        record = site.record(f"Example/1.0{suffix}")
        assert record["image_constraints"] == dict.fromkeys(CONSTRAINTS, "/etc/pip/constraint.txt")
        told = site.bash(f"module help Example/1.0{suffix} 2>&1").stdout
        assert f"The image's own constraints for pip and uv are not used ({', '.join(CONSTRAINTS)})." in told


def test_extending(place):
    """K-04, field 0c: a newer pure Python package is added, another package is replaced, as with other images."""
    assert "can be installed" in extend(place, "other", "--replace", "native==2.0", "--force", "--check")
    extend(place, "more", "--add", "wants")
    site = place[0]
    (module,) = (path.name for path in (site.prefix / "eb/software/Example").glob("*-more-1"))
    show = "import pure, native, wants; print(pure.__version__, native.__version__)"
    assert site.bash(f'module load Example/{module} && singularity exec $SIF python -c "{show}"').stdout == "2.0 1.0\n"


@pytest.mark.parametrize("suffix", ["", "-plain"])
def test_pip_by_hand(place, suffix):
    """K-04: make-venv, and pip in its environment, do the same as with other images; the caller's own count."""
    site, packages = place
    environment = site.work / f"env{suffix}"
    install = f"pip install -q --no-index --find-links {packages}"
    found = site.bash(f"""
        module load Example/1.0{suffix} && make-venv {environment}
        source {environment}/bin/activate && {install} wants
        python -c 'import pure; print("found", pure.__version__)'
        {install} native==2.0 && echo replaced
        for name in {" ".join(CONSTRAINTS)}; do
            start-shell -c "echo $name \\${{$name-}}"
            env $name=/mine singularity exec $SIF printenv $name
        done""").stdout.splitlines()
    # without user software, nothing is protected
    assert ("replaced" in found) is (suffix == "-plain"), found
    assert "found 2.0" in found
    ours = {"PIP_CONSTRAINT": "/runscripts/image-constraints.txt", "UV_OVERRIDE": "/runscripts/image-overrides.txt"}
    expected = [
        line for name in CONSTRAINTS for line in (f"{name} {'' if suffix else ours.get(name, '')}".strip(), "/mine")
    ]
    assert found[-8:] == expected, found
