"""Fixtures that every kind of test uses."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

# fixtures that are expensive, or use one place in the checkout: their tests run in one process
GROUPS = {"installed": "installed", "installed_once": "installed", "installations": "installed", "demo": "demo",
          "clone": "demo"}


@pytest.hookimpl(tryfirst=True)  # before the plugin that reads the marks
def pytest_collection_modifyitems(items):
    """Keep tests together that share such a fixture."""
    for item in items:
        for fixture in set(item.fixturenames) & set(GROUPS):
            item.add_marker(pytest.mark.xdist_group(GROUPS[fixture]))
            break
