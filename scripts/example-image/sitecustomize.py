"""
Search site-packages of the environment's prefix, as upstream Python does.

Debian's interpreter searches dist-packages only, except in a venv, and its module site is frozen into the program, so
changing site.py would have no effect. A venv without the system's packages must not see them.
"""

import os
import site
import sys

if sys.base_prefix in site.PREFIXES:
    site.addsitedir(os.path.join(sys.base_prefix, "lib", "python%d.%d" % sys.version_info[:2], "site-packages"))
