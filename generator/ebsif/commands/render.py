"""Write the easyconfigs for the catalog of a site. Only files that change are written.

A record that can't be rendered, or that has the same module as another one, is reported with its file and line; the
others are still written, and the exit status is 1. So is an easyconfig that a person has written, or edited since it
was rendered, and one of another site: it stays as it is, unless --overwrite is given.

Easyconfigs of archived records are written below __archive__, where eb finds them by their path only.
"""

from argparse import ArgumentParser, Namespace

from ebsif.catalog import reading
from ebsif.catalog.yamlerrors import Problem
from ebsif.commands.options import (
    add_dry_run,
    add_names,
    add_overwrite,
    add_settings,
    complete,
    named,
    offer,
    settings_of,
)
from ebsif.errors import FOUND
from ebsif.render import easyconfig, rendering
from ebsif.report import output

EXAMPLES = """\
  ebsif render --site lumi                   # write to easyconfigs/
  ebsif render --site lumi PyTorch/2.7.0     # only this version
  ebsif render --site lumi --diff            # show what would change
  ebsif render --stdout PyTorch/2.13.0       # print instead of writing
  ebsif render --site lumi --except ccpe     # all but some
"""


def configure(parser: ArgumentParser) -> None:
    """Add the arguments."""
    add_settings(parser, easyconfigs=True)
    add_names(parser)
    offer(
        complete,
        parser.add_argument(
            "--except",
            dest="left_out",
            metavar="CONTAINER",
            nargs="+",
            default=[],
            help="leave these out (NAME, NAME/VERSION or a part of a name)",
        ),
    )
    add_overwrite(parser)
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--diff", action="store_true", help="only show what would change; exit status 1 if anything would")
    add_dry_run(how, "only list the files that would be written")
    how.add_argument("--stdout", action="store_true", help="only print the easyconfigs")


def run(options: Namespace) -> int:
    """Render the easyconfigs; return the exit status."""
    settings = settings_of(options)
    profile = settings.site()
    directories = settings.directories_of(profile)
    everything = not (options.names or options.diff or options.dry_run or options.stdout)
    unreadable: list[Problem] = []
    containers = reading.read(profile, *directories, problems=unreadable)
    chosen = containers
    if options.names:
        chosen = named(options, containers, options.names)
    left_out = named(options, containers, options.left_out)
    chosen = [one for one in chosen if one not in left_out]
    moving = [] if options.stdout else [one for one in chosen if one.moving_image()]
    done, more = rendering.render_all([one for one in chosen if one not in moving], settings.output, containers)
    problems = [*map(str, unreadable), *more]
    problems += [f"{one.path}: {one.module} is not rendered: {easyconfig.moving_problem(one)}" for one in moving]
    for problem in problems:
        output.error(problem)
    if options.stdout:
        for rendered in done:
            print(rendered.text, end="")
        return FOUND if problems else 0
    kept = {} if options.overwrite else rendering.refused(done, settings.output)
    for refusal in kept.values():
        output.error(
            f"{refusal.path} {refusal.reason}, and is not replaced: {refusal.remedy}, or replace the file "
            "with --overwrite"
        )
    states = {"new": 0, "moved": 0, "changed": 0, "unchanged": 0}
    for rendered in [one for one in done if one.path not in kept]:
        states[rendered.state] += 1
        if not options.diff and rendered.state != "unchanged":
            print(f"{rendered.state:8} {rendered.path}")
    if options.diff:
        for rendered in done:
            output.print_diff(rendered.path, rendered.before, rendered.text)
    elif not options.dry_run:
        rendering.write(done, settings.output, kept)
    paths = [rendered.path for rendered in done]
    # if a record can't be read, an easyconfig without a record may be its own
    if everything and len(problems) == len(moving):
        wanted = [*paths, *(rendering.place(one, settings.output) for one in (*moving, *left_out))]
        # what is kept is reported above
        wanted += [refusal.path for refusal in kept.values()]
        for path in rendering.left_over(wanted, settings.output, profile):
            output.error(f"{path} is no longer in the catalog: remove it, or remove its first line to keep it")
    if not options.diff:
        output.hint(
            f"easyconfigs of the site {profile.name}: {states['new']} new, "
            + (f"{states['moved']} moved, " if states["moved"] else "")
            + f"{states['changed']} changed, {states['unchanged']} up to date"
            + (f", {len(kept)} kept" if kept else "")
            + (f"; {output.format_count(len(problems), 'problem')}" if problems else "")
        )
    return FOUND if problems or kept or (options.diff and len(paths) > states["unchanged"]) else 0
