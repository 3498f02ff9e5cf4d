"""
The commands of ``ebsif``, one module each, and what the help says about them.

A module's docstring is the description in its help, and EXAMPLES are shown at the end. ``configure(parser)`` adds the
arguments; ``run(options)`` does the work and returns the exit status.
"""

# A module is loaded only when it is used: some libraries take longer to load than a command to run.
HEADINGS = {
    "choose a container": {
        "list": "list the containers in the catalog, or your own modules",
        "show": "show what is in a container or an image",
        "diff": "compare two containers or installations",
    },
    "use it": {
        "install": "install a container of the catalog as a module",
        "extend": "add your own Python packages on top of a container",
        "upgrade": "move an extension to a newer container",
        "remove": "remove a module that you have installed",
        "run": "run a command in a container, without loading its module",
        "job": "write a batch script that runs a program on many nodes",
        "connect": "reach the server of a running job",
        "kernel": "add a module to the kernels of Jupyter",
        "interpreter": "give editors a Python interpreter that runs in a container",
        "doctor": "check this machine, or whether installed modules still work",
    },
    "share it": {
        "lock": "print what is installed with exact versions, in several formats",
        "export": "write the environment of a module as an RO-Crate, for a paper",
        "push": "put the environment of a module into a registry or directory",
        "pull": "install an environment from a registry or directory",
        "ood": "write an app for Open OnDemand",
    },
    "run a site": {
        "site": "create a profile for your site, or try its host libraries",
        "add": "add an image to the catalog",
        "scan": "find images that the catalog lacks, and add them",
        "import": "import existing easyconfigs into the catalog",
        "render": "write the easyconfigs of the catalog",
        "check": "check the catalog and its easyconfigs",
        "installed": "list installed modules and report problems",
        "docs": "build web pages for choosing a container",
        "reframe": "write checks of the modules for ReFrame",
        "selftest": "test on this machine that modules can be installed and used",
    },
}
HIDDEN = {"completion": "print a shell completion script"}
COMMANDS = {**{name: text for commands in HEADINGS.values() for name, text in commands.items()}, **HIDDEN}

FIRST_STEPS = """\
  ebsif list                                   # which containers are there?
  ebsif show PyTorch                           # what is in it, how to load it
  ebsif extend PyTorch -r requirements.txt --name mine
  ebsif job mine --nodes 2 -- train.py         # a batch script
"""

# Commands of 0.1 to 0.3, and what does their work now.
MOVED = {
    "audit": "ebsif installed --audit",
    "command": "ebsif interpreter CONTAINER --command",
    "freeze": "ebsif lock CONTAINER --format eb",
    "inspect": "ebsif show IMAGE",
    "python": "ebsif interpreter CONTAINER",
    "schema": "ebsif check --schema NAME",
    "update": "ebsif scan",
    "wheelhouse": "ebsif extend EASYCONFIG --wheelhouse DIRECTORY",
}

# What people type who know other tools, and what is meant.
OTHER_WORDS = {
    "-V": "ebsif --version",
    "avail": "ebsif list",
    "batch": "ebsif job",
    "build": "ebsif add IMAGE",
    "create": "ebsif extend CONTAINER --name NAME",
    "delete": "ebsif remove",
    "exec": "ebsif run MODULE -- COMMAND",
    "find": "ebsif list --has PACKAGE",
    "info": "ebsif show",
    "init": "ebsif site init NAME",
    "list-packages": "ebsif show CONTAINER",
    "load": "module load NAME",
    "ls": "ebsif list",
    "pip": "ebsif extend CONTAINER --add PACKAGE",
    "rm": "ebsif remove",
    "sbatch": "ebsif job MODULE --submit -- PROGRAM",
    "search": "ebsif list --has PACKAGE",
    "shell": "ebsif run MODULE -- bash",
    "srun": "ebsif job MODULE -- PROGRAM",
    "submit": "ebsif job MODULE --submit -- PROGRAM",
    "test": "ebsif selftest",
    "uninstall": "ebsif remove",
    "validate": "ebsif check",
    "version": "ebsif --version",
}

STATUSES = """\
exit status:
  0  done; nothing is wrong, nothing differs
  1  something was found: errors, differences, or nothing that matches
  2  usage error: the command line is incomplete or contradicts itself
  3  failed; the message says why
"""

# The MORE of commands that run eb: EasyBuild is configured with these options before the command runs.
EB_OPTIONS = ("EB_OPTION", "options of eb")
