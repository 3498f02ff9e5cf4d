"""Fixtures for all tests."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

pytest_plugins = ["easybuild_configuration", "parts", "cache_node", "noted_images", "fault_report", "prefixes",
                  "registry", "site_easybuild", "ssh_server", "training", "workbench"]
