"""Create a virtual environment that sees all packages of this Python, even if that belongs to an environment itself.

Usage: python3 -I - DIRECTORY IMAGE_PIP PIP, the last two being the texts of image-pip.py and of the command pip.
"""
import ast
import os
import subprocess
import sys
import venv

directory, image_pip, pip = sys.argv[1:]
try:
    venv.EnvBuilder(system_site_packages=True, symlinks=True).create(directory)
except OSError as error:
    sys.exit(str(error))
program = os.path.join(directory, 'bin', 'python')


def search_path(python):
    """Return the module search path of a Python."""
    # -I: don't import modules from the working directory
    printed = subprocess.run([python, '-I', '-m', 'site'], stdout=subprocess.PIPE, check=True).stdout
    lines = printed.decode().splitlines()
    return [ast.literal_eval(line.strip(' ,')) for line in lines[1:lines.index(']')]]


folder = os.path.join(directory, 'lib', 'python%d.%d' % sys.version_info[:2], 'site-packages')
seen = search_path(program)
unseen = [path for path in search_path(sys.executable) if path.endswith('-packages') and path not in seen]
# ensurepip takes four seconds, and is for a Python without a complete pip
if subprocess.run([sys.executable, '-I', '-c', image_pip, directory, pip]).returncode:
    venv.EnvBuilder(system_site_packages=True, symlinks=True, with_pip=True).create(directory)
    subprocess.run([program, '-I', '-c', image_pip, directory, pip], check=True)
if unseen:
    # with a .pth file they come after the environment's own packages
    with open(os.path.join(folder, 'container-packages.pth'), 'w') as pth:
        pth.write(''.join(path + '\n' for path in unseen))
