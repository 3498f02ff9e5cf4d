# shellcheck shell=sh
# Create a venv that sees the packages of the image, add commands for the image's pip and its other programs, and print
# their names and, in the last line, what the venv has.
# Usage: VENV IMAGE_PIP PIP PROGRAMS PACKAGES (but for the first, texts: image-pip.py, pip, image-programs.py and
# installed-packages.py)
# Exit status: that of image-pip.py, if the venv was created and it failed.
python3 -c "import sys, venv
venv.main(['--without-pip', '--system-site-packages', sys.argv[1]])
$2" "$1" "$3" && exec "$1/bin/python" -c "$4
$5"
