"""Create a virtual environment that sees all packages of this Python, even if that belongs to an environment itself.

Usage: python3 -I - DIRECTORY IMAGE_PIP PIP PROGRAMS, by eb and make-venv. All but the first are texts: image-pip.py,
the command pip, and what the environment's Python runs in the end, such as image-programs.py. If the image's pip can't
be used, the environment gets that of ensurepip.
"""
import ast
import os
import subprocess
import sys
import venv

directory, image_pip, pip, programs = sys.argv[1:]
program = os.path.join(directory, 'bin', 'python')


def create(**options):
    """Create the environment without pip."""
    try:
        venv.EnvBuilder(symlinks=True, **options).create(directory)
    except OSError as error:
        sys.exit(str(error))


def add_pip(python):
    """Add commands for pip with a Python that has it; return the exit status."""
    return subprocess.run([python, '-I', '-c', image_pip, directory, pip]).returncode


def search_path(python):
    """Return the module search path of a Python."""
    # -I: don't import modules from the working directory
    command = [python, '-I', '-c', 'import sys; print(ascii(sys.path))']
    return ast.literal_eval(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout.decode())


create(system_site_packages=True)
# ensurepip takes four seconds, and is for a Python without a complete pip
if add_pip(sys.executable):
    # not by `venv` itself, which hides why that fails; without seeing the image's pip, or ensurepip may do nothing
    create(clear=True)
    command = [program, '-I', '-m', 'ensurepip', '--upgrade', '--default-pip']
    status = subprocess.run(command, stdout=sys.stderr).returncode
    create(system_site_packages=True, upgrade=True)
    if status or add_pip(program):
        sys.exit(status or 1)
seen = search_path(program)
# this Python runs with -I, too
unseen = [path for path in sys.path if path not in seen]
if unseen:
    # with a .pth file they come after the environment's own packages
    folder = os.path.join(directory, 'lib', 'python%d.%d' % sys.version_info[:2], 'site-packages')
    with open(os.path.join(folder, 'container-packages.pth'), 'w') as pth:
        pth.write(''.join(path + '\n' for path in unseen))
os.execv(program, [program, '-c', programs])
