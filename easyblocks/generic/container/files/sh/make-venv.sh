# shellcheck shell=sh
# Create a venv that sees the packages of the image, copy the image's pip into it, and print what the venv has. One start
# of the container is enough for all of it. copy-pip.py is standard input.
# Usage: VENV PROGRAM ARGUMENT... (the text of installed-packages.py, and arguments for copy-pip.py)
# Exit status: that of copy-pip.py, if the venv was created and it failed.
venv=$1
program=$2
shift 2
python3 -m venv --without-pip --system-site-packages "$venv" && "$venv/bin/python3" -I - "$@" &&
    exec "$venv/bin/python" -c "$program"
