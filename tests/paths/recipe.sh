# shellcheck shell=bash disable=SC1090,SC1091,SC2086
# Somebody who comes from the recipe in use today: the easyconfig becomes data, the modules are replaced, jobs still run.
ebsif import old.eb --site local -o records.yaml || echo "something needs a look"
eb Example-1.0-*.eb --rebuild
./old-job.sh
