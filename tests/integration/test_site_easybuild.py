"""EasyBuild configured as LUMI's: everything works, and what is the site's is neither replaced nor disturbed."""

from support import EASYBLOCKS


def share_easyblocks(site):
    """Put our easyblocks in the directory that all EasyBuilds of a site include."""
    for path in (EASYBLOCKS / "generic").glob("*"):
        (site.easyblocks / "generic" / path.name).symlink_to(path)


def test_an_older_easybuild_is_not_disturbed(lumi):
    """F-04 (lumi A1): with our easyblocks in its include path, EasyBuild 4 refuses containers and nothing else."""
    share_easyblocks(lumi)
    container = lumi.easyconfig("sources = ['example.sif']")
    said = lumi.bash(f"eb -D hello-1.0.eb; eb -S ^hello; eb {container}", check=False, easybuild="4")
    assert said.stdout.count("(module: hello/1.0)") == 1
    assert "/hello-1.0.eb" in said.stdout.split("(module: hello/1.0)")[1]
    (refused,) = [line for line in said.stderr.splitlines() if line.startswith("ERROR")]
    assert refused.endswith("the easyblocks for container images need EasyBuild 5, and this is EasyBuild 4.9.4: load "
                            "or install a newer EasyBuild")
    # the same directory, with EasyBuild 5
    assert "(module: Example/1.0)" in lumi.bash(f"eb -D {container}").stdout
