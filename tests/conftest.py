"""Fixtures for all tests."""

import os
import sys
from pathlib import Path

import pytest
from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent))

import account

account.leave_root()

# The suite tries the same examples each time, so that a change alone decides whether it is green; new ones are
# searched by `make test-nightly` and `make test-faults`.
settings.register_profile("same", derandomize=True)
settings.register_profile("search", derandomize=False)
settings.load_profile("same")

pytest_plugins = [
    "easybuild_configuration",
    "parts",
    "cache_node",
    "fault_report",
    "prefixes",
    "registry",
    "site_easybuild",
    "ssh_server",
    "training",
    "workbench",
]


@pytest.hookimpl(wrapper=True)
def pytest_sessionstart(session):
    """Start the processes of pytest-xdist as root, so that each can return to it."""
    # made before: it belongs to the account
    session.config._tmp_path_factory.getbasetemp()
    with account.as_starter():
        return (yield)


def pytest_runtest_setup(item):
    """Let only unit tests run as root, where the account is missing."""
    if os.geteuid() == 0 and "unit" not in item.path.parts:
        pytest.fail(
            f"tests of what people do don't run as root, but as the account {account.NAME}: create it "
            "(scripts/test does)"
        )


@pytest.fixture
def root():
    """Root is the subject of the test."""
    with account.as_root():
        yield


@pytest.fixture
def ebsif(capsys):
    """A function that runs ebsif in this process, compares its exit status, and returns what it has printed."""
    # integration tests start the command
    from ebsif.cli import main

    def run(*words, status=0):
        capsys.readouterr()
        assert main([str(word) for word in words]) == status
        return capsys.readouterr()

    return run


@pytest.fixture
def eb_on_path(monkeypatch):
    """Put the eb that is installed with ebsif on PATH, as a module of EasyBuild does."""
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
