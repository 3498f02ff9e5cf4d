"""What `ebsif extend` and `ebsif upgrade` do with an extension: write its easyconfig, look ahead, install it."""

import itertools
import os
import shlex
from pathlib import Path

from ebsif import eb, files, output
from ebsif.catalogue import selection
from ebsif.catalogue.settings import read_settings
from ebsif.render import easyconfig
from ebsif.user import extending

HEADER = "# Written by `ebsif extend`: yours to change."


def add_outcome(parser):
    """Add the arguments for what comes of it."""
    parser.add_argument("-o", "--output", metavar="DIRECTORY", type=Path, default=Path(),
                        help="where the easyconfig goes (default: here)")
    parser.add_argument("--image", metavar="FILE", type=Path,
                        help="the image, for --check, where it is not where eb finds it")
    parser.add_argument("--check", action="store_true", help="look ahead with pip in the image, install nothing")
    parser.add_argument("--install", action="store_true", help="install it, with eb in a clean directory")
    parser.add_argument("--rebuild", action="store_true",
                        help="write and install it again, where it's there already with other content")


def chosen(options):
    """Return the container that is named (Container)."""
    settings = read_settings(options)
    return selection.find_one(settings.containers(settings.site()), options.module)


def write(options, container, stages, name):
    """Write the easyconfig of a container with packages on top, look ahead, install; return the exit status."""
    installing = options.install or options.rebuild
    if installing or options.check:
        # a mistake in its options or configuration is told before anything is written
        eb.session(tuple(options.more))
    extended = extending.extend(container, stages, name, options.date)
    text = easyconfig.render(extended, HEADER)
    if options.check:
        show(extending.check(extended, options.more, options.image))
        if not installing:
            return 0
    path = options.output / extended.easyconfig_name
    write_file(path, text, options.rebuild)
    if installing:
        return install(path, options.rebuild, [*options.more, extending.sources(extended)])
    # with another module of that software loaded, eb refuses
    loaded = os.environ.get("EBSIF_LOADED_MODULE")
    output.hint(f"install it with: {f'module unload {loaded}; ' if loaded else ''}eb {shlex.quote(str(path))}")
    output.hint(f"then: module load {extended.module}")
    return 0


def write_file(path, text, again):
    """Write an easyconfig; what a person may have changed is kept beside it, or, unless `again` is true, as it is."""
    before = path.read_text(encoding="utf-8") if path.exists() else text
    if before != text:
        if not again:
            raise extending.ExtendingError(f"{path} is there already, with other content: --rebuild writes and "
                                           "installs it again; or choose another --name or --date")
        numbers = itertools.count(2)
        kept = path.with_name(f"{path.name}.old")
        while kept.exists():
            kept = path.with_name(f"{path.name}.old{next(numbers)}")
        path.replace(kept)
        output.hint(f"kept {kept}, as it was")
    files.replace(path, text)
    print(path)


def install(path, again, more):
    """Install an easyconfig, and tell how to load the module; return the exit status of eb."""
    place = eb.place_of(path.resolve())
    again_by_hand = {"--rebuild", "--force", "-f"} & set(more)
    if place.file.exists() and not (again or again_by_hand) and not is_installed(path, place):
        raise extending.ExtendingError(
            f"{place.module} is installed already, but not from what {path} says now: --rebuild installs it again; or "
            "choose another --name or --date")
    status = eb.run([path.resolve(), *(["--rebuild"] if again else []), *more]).returncode
    if status == 0 and place.file.exists():
        output.hint(f"now: {place.load}")
    return status


def is_installed(path, place):
    """Tell whether an installation was made from an easyconfig as it is now: eb keeps a copy of the one it used."""
    copy = place.installation / "easybuild" / path.name
    return copy.is_file() and copy.read_bytes() == path.read_bytes()


def show(plan):
    """Print what pip would do."""
    for name, version in plan.added:
        print(f"+ {name} {version}")
    for name, version in plan.there:
        print(f"= {name} {version} is in the image")
    print(f"added: {len(plan.added)}, already in the image: {len(plan.there)}, download: "
          f"{extending.size_of_download(plan)}")
