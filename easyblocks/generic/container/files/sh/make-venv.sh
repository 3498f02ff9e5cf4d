# shellcheck shell=sh
# Make a venv that sees the packages of the image, and give it the image's pip: copy-pip.py is standard input.
# Usage: VENV TIME
# Exit status: that of copy-pip.py, if the venv could be made.
python3 -m venv --without-pip --system-site-packages "$1" && exec "$1/bin/python3" -I - "$2"
