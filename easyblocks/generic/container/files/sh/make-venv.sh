# shellcheck shell=sh
# Create a venv that sees the packages of the image, add commands for the image's pip and its other programs, and print
# their names and, in the last line, what the venv has. If the image's pip can't be used, the venv gets that of ensurepip.
# Usage: VENV IMAGE_PIP PIP PROGRAMS PACKAGES (but for the first, texts: image-pip.py, pip, image-programs.py and
# installed-packages.py)
python3 -c "import sys, venv
venv.main(['--without-pip', '--system-site-packages', sys.argv[1]])
$2" "$1" "$3"
status=$?
if [ $status = 3 ]; then
    # not `venv` itself, which hides why that fails; and without seeing the image's pip, or ensurepip may do nothing
    python3 -m venv --clear --without-pip "$1" && "$1/bin/python" -Im ensurepip --upgrade --default-pip >&2 &&
        python3 -m venv --upgrade --without-pip --system-site-packages "$1" &&
        "$1/bin/python" -c "$2" "$1" "$3"
    status=$?
fi
[ $status = 0 ] && exec "$1/bin/python" -c "$4
$5"
exit $status
