# shellcheck shell=sh
# Create a venv like `python3 -m venv`, but install pip in a separate step, because venv hides why that fails.
# Usage: VENV ARGUMENT... (for the venv's Python, to install pip)
venv=$1
shift
python3 -m venv --clear --without-pip "$venv" && exec "$venv/bin/python3" "$@"
