# shellcheck shell=sh
# Create a venv that sees the packages of the image, add commands for the image's pip and its other programs, and print
# their names and, in the last line, what the venv has. One start of the container is enough for all of it. image-pip.py
# is standard input.
# Usage: VENV PROGRAMS PACKAGES ARGUMENT... (the texts of image-programs.py and installed-packages.py, and arguments for
# image-pip.py)
# Exit status: that of image-pip.py, if the venv was created and it failed.
venv=$1
programs=$2
packages=$3
shift 3
python3 -m venv --without-pip --system-site-packages "$venv" && "$venv/bin/python3" -I - "$@" &&
    exec "$venv/bin/python" -c "$programs
$packages"
