"""The subcommands of ``ebsif``, one module each.

A module's docstring is the description in its help; EXAMPLES are shown below it. ``configure(parser)`` adds the
arguments, ``run(options)`` does the work and returns the exit status.
"""
