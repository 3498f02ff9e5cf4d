# shellcheck shell=sh
# Make a venv as `python3 -m venv` would, but pip is a step of its own: venv keeps to itself what went wrong with it.
# Usage: VENV ARGUMENT... (of the venv's Python, to get pip)
venv=$1
shift
python3 -m venv --clear --without-pip "$venv" && exec "$venv/bin/python3" "$@"
