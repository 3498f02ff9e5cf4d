"""The easyblocks of this project, for mypy: what the generator takes from them is checked, too."""
