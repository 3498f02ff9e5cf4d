"""The subcommands of ``ebsif``, one module each.

A module's docstring is the description in its help, and EXAMPLES are shown at the end. ``configure(parser)`` adds the
arguments; ``run(options)`` does the work and returns the exit status.
"""
