"""Fixtures for all tests."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

pytest_plugins = ["easybuild_configuration", "parts", "fault_report", "prefixes", "registry", "ssh_server", "training",
                  "workbench"]
