"""Installation: the example compared with a recipe in today's style, images of two sizes compared with a plain copy."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import index
import recipe
from measuring import in_turn, rows, run
from parts import TOOLS
from support import CHECKOUT, Site

REQUIREMENTS = ["torchmetrics", "pytorch-lightning"]
EXAMPLE = CHECKOUT / "easyconfigs/p/PyTorch/PyTorch-2.13.0-cpu-python-3.11-singularity-exampleVenv-20261121.eb"

# an easyconfig without anything to install, to measure eb itself
NOTHING = """\
easyblock = 'Bundle'
name = 'Nothing'
version = '1.0'
homepage = 'https://example.org'
description = 'Nothing.'
toolchain = SYSTEM
postinstallcmds = ['mkdir %(installdir)s/bin && touch %(installdir)s/bin/nothing']
sanity_check_paths = {'files': ['bin/nothing'], 'dirs': []}
moduleclass = 'devel'
"""

IMAGE = """\
easyblock = 'ContainerInstall'
name = 'Image'
version = '1.0'
homepage = 'https://example.org'
description = 'An image.'
toolchain = SYSTEM
sources = ['image.sif']
init = 'conda-injected'
conda_env = 'pytorch'
moduleclass = 'ai'
"""


def prepared(folder):
    """
    Prepare a site with the example image and a pip cache.

    Returns
    -------
    site : Site
    theirs : Path
        The hand-written recipe for the example.
    install : function
        Installs an easyconfig, with more options and variables for eb if given.
    """
    site = Site(folder / "site", TOOLS["Lmod-Lua"](), Path(sys.prefix))
    image = Path(os.environ["EBSIF_TEST_PYTORCH_IMAGE"])
    (site.sources / image.name).symlink_to(image)
    binds = run(["bash", CHECKOUT / "scripts/install-binds"]).stdout.strip()
    theirs = folder / "theirs.eb"
    theirs.write_text(
        recipe.easyconfig(
            "PyTorch",
            "2.13.0",
            "-theirs",
            image.name,
            "/opt/miniconda3/bin/activate pytorch",
            REQUIREMENTS,
            f"{binds}," if binds else "",
        )
    )
    cache = folder / "cache"
    cache.mkdir()

    def install(easyconfig, *more, **environment):
        place = unused(folder)
        # the recipe fills a directory in its installation, and removes it
        options = [*more]
        options += [f"--buildpath={place}"] + [f"--installpath={place}/installed"] * (easyconfig == theirs)
        # all use the same cache; the recipe doesn't bind it itself
        eb(
            site,
            easyconfig,
            "--rebuild",
            *options,
            EBSIF_INSTALL_BIND=binds,
            PIP_CACHE_DIR=cache,
            APPTAINER_BIND=cache,
            **index.cacheable(),
            **environment,
        )

    return site, theirs, install


def eb(site, *arguments, **environment):
    """Run the command that people type; the tests' eb goes on in a process that has imported EasyBuild."""
    site.run(["eb", *site.eb_options, *arguments], timeout=580, **environment)


def unused(folder):
    """
    Return a new directory in which ext4 creates files as fast as in the first installation.

    Without a journal, ext4 takes half a millisecond of CPU to create a file where thousands have been deleted in the
    last minutes (recently_deleted in fs/ext4/ialloc.c). In a directory with the attribute T, it spreads the new ones.
    """
    places = folder / "places"
    if not places.exists():
        places.mkdir()
        subprocess.run(["chattr", "+T", places], check=False, capture_output=True)
    return tempfile.mkdtemp(dir=places)


def compared(benchmark, install, theirs, ours, target, notes):
    """
    Install a hand-written recipe, and our easyconfig with and without the import of what was asked for.

    The recipe imports nothing, so the target is for the same work: for eb with --skip-test-step.
    """
    recipe, alike = "hand-written recipe", "ebsif, no imports"
    times = in_turn(
        {
            recipe: lambda: install(theirs),
            "ebsif": lambda: install(ours),
            alike: lambda: install(ours, "--skip-test-step"),
        },
        runs=3,
    )
    found = rows(benchmark, {name: times[name] for name in (recipe, "ebsif")}, "ebsif", {recipe: None}, notes())
    # the first row is the recipe's again
    return (
        found + rows(benchmark, {name: times[name] for name in (recipe, alike)}, alike, {recipe: ("ratio", target)})[1:]
    )


def example(folder):
    """Install the example with its requirements, with a warm pip cache."""
    _, theirs, install = prepared(folder)
    return compared(
        "install of the example",
        install,
        theirs,
        EXAMPLE,
        0.4,
        lambda: {
            "ebsif": "also: SHA256, constraints, compiled in parallel, SquashFS read back, lock, checks, imports",
            "hand-written recipe": "gzip on one processor, two copies of the image",
        },
    )


def extension(folder):
    """An extension of the installed example against its recipe, and what each of them needs on disk."""
    site, theirs, install = prepared(folder)
    ours = folder / "ours.eb"
    ours.write_text(EXAMPLE.read_text().replace("exampleVenv-20261121", "20261121-mine") + "image = 'reference'\n")
    site.eb(EXAMPLE.with_name(EXAMPLE.name.replace("exampleVenv-", "")))
    software = site.prefix / "eb/software/PyTorch"

    def notes():
        # what the base has is counted once, and subtracted
        (base,) = (path for path in software.iterdir() if not path.name.endswith(("-mine", "-theirs")))
        (mine,), (hand, *_) = software.glob("*-mine"), folder.glob("places/*/installed/software/PyTorch/*-theirs")
        return {
            "ebsif": f"{disk_use(base, mine) - disk_use(base):.0f} MB on disk, without the image of the base",
            "hand-written recipe": f"{disk_use(hand):.0f} MB on disk",
        }

    return compared("extension of the installed example", install, theirs, ours, 0.3, notes)


def change(folder):
    """One more package in an extension that has twenty: with those that are there, and with all installed again."""
    site, _, install = prepared(folder)
    before, after = folder / "before.eb", folder / "after.eb"
    # another name can be that of one module only
    text = re.sub("^aliases = .*\n", "", EXAMPLE.read_text(), flags=re.MULTILINE) + "image = 'reference'\n"

    def named(name, *more):
        """Return the example with another name, and with more packages behind its own."""
        lines = "".join(f"{one}\n" for one in more)
        return re.sub(r'(requirements = """.*?)(?=""")', rf"\g<1>{lines}", text, flags=re.DOTALL).replace(
            "exampleVenv-20261121", f"20261121-{name}"
        )

    before.write_text(named("before", "scikit-learn"))
    install(before)
    (root,) = (site.prefix / "eb/software/PyTorch").glob("*-before")
    pins = json.loads((root / "share/ebsif/lock.json").read_text())["venv_packages"]
    constraints = [line for line in pins if not line.startswith("pip==")]
    after.write_text(named("after", "scikit-learn", "einops") + f"constraints = {constraints}\n")
    times = in_turn(
        {"all packages again": lambda: install(after), "ebsif": lambda: install(after, EBSIF_REUSE=root)}, runs=3
    )
    return rows(
        "one more package in an extension",
        times,
        "ebsif",
        {"all packages again": ("ratio", 0.7)},
        {"ebsif": f"{len(constraints)} packages stay as they are"},
    )


def disk_use(*paths):
    """Return the disk space that directories use together, in MB; hard links count once."""
    return int(run(["du", "-c", "-s", "--block-size=1", *paths]).stdout.split()[-2]) / 1e6


def images(folder):
    """Install images without requirements, enlarged by appending incompressible bytes."""
    found = []
    for size in (0.4, 4):
        site = Site(folder / f"site-{size}", TOOLS["Lmod-Lua"](), Path(sys.prefix))
        image = site.sources / "image.sif"
        shutil.copy(os.environ["EBSIF_TEST_PYTORCH_IMAGE"], image)
        missing = int(size * 1e9) - image.stat().st_size
        run(["bash", "-c", 'head -c "$1" /dev/urandom >>"$2"', "bash", str(missing), image])
        (folder / "nothing.eb").write_text(NOTHING)
        (folder / "image.eb").write_text(IMAGE)
        copy = folder / "copy.sif"

        def nothing(site=site, image=image, copy=copy):
            copy.unlink(missing_ok=True)
            run(["cp", "--reflink=never", image, copy])
            # ebsif also waits until the file is on disk
            os.sync()
            eb(site, folder / "nothing.eb", "--rebuild")

        def ours(site=site):
            eb(site, folder / "image.eb", "--rebuild")

        copying = "cp and an empty run of eb"
        times = in_turn({copying: nothing, "ebsif": ours}, runs=5 if size < 1 else 3)
        found += rows(
            f"install of an image of {size} GB",
            times,
            "ebsif",
            {copying: ("ratio", 1.3)},
            {"ebsif": "also: SHA256, scripts, started once in the container, lock, checks"},
        )
        shutil.rmtree(site.prefix)
    return found
