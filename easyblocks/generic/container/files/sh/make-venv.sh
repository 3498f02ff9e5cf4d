# shellcheck shell=sh
# Make a venv that sees the packages of the image, and give it the image's pip: copy-pip.py is standard input.
# Usage: VENV ARGUMENT... (of copy-pip.py)
# Exit status: that of copy-pip.py, if the venv could be made.
venv=$1
shift
python3 -m venv --without-pip --system-site-packages "$venv" && exec "$venv/bin/python3" -I - "$@"
