# shellcheck shell=bash disable=SC1090,SC1091,SC2086,SC2103,SC2164
# The same person, second week: packages of their own; one more, one less; an environment for development.
ebsif extend Example/1.0 -r requirements.txt --name mine --check
ebsif extend Example/1.0 -r requirements.txt --name mine 2>&1 | tee printed
eval "$(sed -n 's/^load it with: //p' printed)"
python -c 'import greeting, numpy; print("with", greeting.__file__, numpy.__file__)'
ebsif doctor | grep EasyBuild || true
ebsif extend Example/1.0 -r requirements.txt --name mine
ebsif extend mine --add byhand -o .
ebsif extend mine --add byhand 2>&1 | tee printed
ebsif list --mine
ebsif run mine -- python -c 'import byhand; print("nothing loaded", byhand.__file__)'
ebsif extend mine --replace packaging==25.0 --check
# Environment Modules finds modules by their names only
module spider byhand || module avail Example
eval "$(sed -n 's/^load it with: //p' printed)"
make-venv ~/dev
# the next day
source ~/dev/bin/activate
pip install -q lightly pytest ipykernel
python -c 'import subprocess; subprocess.run(["python", "-c", "import lightly; print(\"with\", lightly.__file__)"])'
pip install -q 'numpy<2' || echo "numpy stays"
cd project
pip install -e .
pytest
cd ..
python -c 'import subprocess; subprocess.run(["python", "-c", "import myproject; print(\"with\", myproject.__file__)"])'
deactivate
# the next day
ebsif kernel install mine || echo "needs ipykernel"
ebsif kernel install ~/dev
ebsif kernel list
ebsif kernel remove "$(ebsif kernel list | sed -n '1s/ .*//p')"
ebsif interpreter mine --write ~/bin/mine-python
env -i HOME="$HOME" PATH=/usr/bin:/bin ~/bin/mine-python -c 'import greeting; print("edited with", greeting.__file__)'
ebsif extend mine --remove greeting
