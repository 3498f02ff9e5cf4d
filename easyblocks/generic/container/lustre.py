##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
Large files on Lustre: spread over several servers before they are written, because thousands of nodes read them.

Doesn't import EasyBuild, because importing it takes longer than running `ebsif list`.
"""
import os

# Options of `lfs setstripe`. Files that several processes read should have more than one stripe, of 1 to 4 MB (LUMI's
# documentation, "Lustre"); one stripe delivers 161 MB/s there (LUMI AI Guide, chapter 4).
STRIPING = ['-c', '8', '-S', '4M']

# The program of an installation that uses the options.
MAKE_STRIPED = os.path.join('share', 'ebsif', 'make-striped')
