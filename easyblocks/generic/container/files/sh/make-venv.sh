# shellcheck shell=sh
# Create a venv that sees the packages of the image, and copy the image's pip into it. copy-pip.py is standard input.
# Usage: VENV ARGUMENT... (for copy-pip.py)
# Exit status: that of copy-pip.py, if the venv was created.
venv=$1
shift
python3 -m venv --without-pip --system-site-packages "$venv" && exec "$venv/bin/python3" -I - "$@"
