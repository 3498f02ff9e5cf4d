"""The validator of RO-Crates, with the definitions of terms from the library that writes crates instead of the web."""

import importlib.resources
import json
import os
import sys

from parts import part
from support import attempt, printed

# Puts what the validator would fetch into its cache: file, URL, cache.
FILL = """
import pathlib, sys
import requests, requests.adapters, requests_cache, urllib3

class Local(requests.adapters.HTTPAdapter):
    def send(self, request, **_):
        body = pathlib.Path(sys.argv[1]).open("rb")
        return self.build_response(request, urllib3.HTTPResponse(body, {"Content-Type": "application/ld+json"}, 200,
                                                                 preload_content=False))

session = requests_cache.CachedSession(sys.argv[3], backend="sqlite", expire_after=-1)
session.mount(sys.argv[2], Local())
session.get(sys.argv[2], headers={"Accept": "application/ld+json, application/json"}).raise_for_status()
"""


def problems(crate, folder):
    """Return what a crate (Path) lacks that it must have (list of str), using a directory (Path) for the cache."""
    place, cache = part("EBSIF_TEST_ROC_VALIDATOR"), folder / "cache"
    context = json.loads((crate / "ro-crate-metadata.json").read_text())["@context"]
    terms = importlib.resources.files("rocrate") / "data/ro-crate.jsonld"
    # its own versions of libraries first
    options = {"env": {**os.environ, "PYTHONPATH": place, "HOME": str(folder)}, "timeout": 300}
    printed([sys.executable, "-c", FILL, terms, context, cache], **options)
    command = [sys.executable, f"{place}/bin/rocrate-validator", "-y", "validate", "--offline", "--cache-path", cache]
    done = attempt([*command, "--requirement-severity", "required", "--output-format", "json", crate], **options)
    found = json.loads(done.stdout[done.stdout.index("{") :])
    assert found["passed"] == (done.returncode == 0), done.stdout + done.stderr
    return [f"{one['violatingEntity']}: {one['message']}" for one in found["issues"]]
