# shellcheck shell=bash disable=SC1090,SC1091,SC2086
# A researcher's first day: choose a container, look at it, use it, write a batch script.
ebsif list --has 'numpy>=2'
ebsif show Example/1.0
ebsif run Example/1.0-writable -- python -c 'import numpy; print("nothing loaded", numpy.__version__)'
module load Example/1.0-writable
singularity exec $SIF python -c 'import numpy; print("with", numpy.__file__)'
ebsif job --nodes 2 -- train.py
