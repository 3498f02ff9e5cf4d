"""Which one is the newest: one list of cases for records, installed modules, extensions, kernels and interpreters."""

import random
import shlex
from types import SimpleNamespace

import pytest
from easybuild.easyblocks.generic.container import newest
from ebsif.catalog import selection
from ebsif.catalog.container import Container
from ebsif.cli import main
from ebsif.commands import selftest
from ebsif.environments import kernels
from ebsif.environments.earlier import Earlier
from ebsif.installed import imagestate, interpreter, search
from ebsif.installed.names import Names, installations
from ebsif.publish.pages import entry
from packaging.version import Version
from prefixes import BASE
from support import printed, write_program

# versions with suffixes, and dates of their records if these aren't in the suffix: the older one, the newer one
VERSIONS = [
    ("2.7.0rc1-rocm-6.2-20250701", "2.7.0-rocm-6.2-20250601"),
    ("2.7.0-rocm-6.4-20250401", "2.7.0-rocm-6.2-20250527"),
    ("2.9.0-x-20260101", "2.10.0-x-20250101"),
    ("2.7.1-x-20250101", "2.8.0-x"),
    # dates of builds and commits have no order
    ("20240918-rocm-6.2-20241007", "2.4.1-rocm-6.1-20240101"),
    ("69afc4d-rocm-5.5-20240207", "11aaaab-rocm-5.5-20250207"),
    ("community-0.5.0-x-20250404", "0.4.35-x-20250404"),
    ("2.9-full-20251209_134408", "2.9-full-20251209_154408"),
    # versions that begin with a letter, without dates
    ("R2023b-x", "R2024a-x"),
    ("r9-x", "r10-x"),
]
# dates of extensions, the oldest one first
NUMBERED = ["20260101", "20260101.2", "20260101.10"]
DATES = ["2026.1.2", "2026.11.28", "20251231", *NUMBERED, "v1", "v1.9", "v9", "v10", "v_1"]


def record(module, date=None, name="Tool"):
    """Return a record of the catalog with a version and a suffix."""
    version, _, suffix = module.partition("-")
    site = SimpleNamespace(moduleclass="ai")
    known = {"version": version, "suffix": f"-{suffix}", "date": date, "default": False, "file": f"{module}.sif"}
    known |= {"aliases": [], "components": {}}
    unknown = dict.fromkeys(("label", "archived", "hash", "python", "variant"))
    return Container.of(name, {**known, **unknown}, site, None)


@pytest.mark.parametrize("dates", [("20250101", "2025-08-27"), ("2025-08", "20250827"), ("2024", "20250827_134408")])
@pytest.mark.parametrize("order", [1, -1])
def test_dates_in_other_forms(dates, order):
    """H-01: software, and the history of a container, are in the order of dates, however these are written."""
    some = [record("1.0-x", date, name) for date, name in zip(dates, ("Older", "Newer"))][::order]
    assert [one.name for one in selection.newest_first(some)] == ["Newer", "Older"]
    older, newer = [record(f"1.0-{date}", date) for date in dates]
    before = {page.container: page.before for page in entry.pages([older, newer][::order])}
    assert before == {older: None, newer: older}


@pytest.mark.parametrize("pair", VERSIONS)
@pytest.mark.parametrize("order", [1, -1])
def test_records_and_installed_modules(eb_prefix, monkeypatch, pair, order):
    """H-01: a release, the newer version, then the later date, whether it is installed or not."""
    records = [record(one) for one in pair[::order]]
    assert selection.find_one(records, "Tool").module == f"Tool/{pair[1]}"
    monkeypatch.setattr(Names, "containers", records)
    for module in pair[::order]:
        eb_prefix.install(f"Tool/{module}", text="")
    assert [one.module for one in search.everything()] == [f"Tool/{one}" for one in reversed(pair)]
    assert Names().installation("Tool").module == Names().find("Tool").module == f"Tool/{pair[1]}"


def test_dates_that_only_records_have(eb_prefix, monkeypatch, ebsif):
    """H-01: the date of a record counts for its installed module, too, also where an alias goes after a removal."""
    records = [record("1.0-b", "20250101"), record("1.0-a", "20250601")]
    monkeypatch.setattr(Names, "containers", records)
    for one in records:
        eb_prefix.install(one.module, text="aliases = ['demo']\n")
    assert selection.find_one(records, "Tool").module == Names().installation("Tool").module == "Tool/1.0-a"
    monkeypatch.setattr(imagestate, "path_of", lambda one: one.module)
    assert selftest.find_image(Names(), "") == "Tool/1.0-a"
    assert [one.module for one in installations(Names(), [])[0]] == ["Tool/1.0-a", "Tool/1.0-b"]
    eb_prefix.install("Tool/1.0-c", text="aliases = ['demo']\n")
    eb_prefix.alias("Tool/1.0-c", "demo")
    assert ebsif("remove", "Tool/1.0-c", "--yes").err.endswith("Tool/demo is Tool/1.0-a now\n")


def test_extensions_kernels_and_interpreters(eb_prefix, tmp_path, monkeypatch):
    """H-01, V-07: the same one for every command, whatever their dates are."""
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "jupyter"))
    line = f'module_version("{{}}", "{BASE.partition("/")[2]}-mine")\n'
    for number, date in enumerate(DATES):
        root = eb_prefix.install(f"{BASE}-mine-{date}", packages=["ipykernel==7.0"])
        write_program(root / "interpreter/python", '#!/bin/sh\necho "$0"\n')
        (eb_prefix.modules / "PyTorch/.modulerc.lua").write_text(line.format(f"{BASE}-mine-{date}"))
        if not number:
            assert main(["kernel", "install", "mine", "--name", "mine"]) == 0
        assert Names().installation("mine").root == root
        assert list(Earlier.of(BASE, "mine", search.everything()).by_date)[-1] == date
        assert interpreter.extensions(interpreter.without_date(root))[-1] == root
        assert main(["interpreter", "mine", "--write", str(tmp_path / "p"), "--overwrite"]) == 0
        for program in (tmp_path / "p", tmp_path / "jupyter/kernels/mine/python"):
            assert printed([program]) == f"{root}/interpreter/python\n"
    (kernel,) = kernels.installed(tmp_path / "jupyter/kernels")
    assert kernel.roots[-1] == root
    assert [one.module.rpartition("-")[2] for one in Names().older(search.everything()[0])] == DATES[-2::-1]


@pytest.mark.parametrize("date", ["2026-11-28", "_1", ".1", "1.", "1.rc1", "1..2", "a b"])
def test_dates_that_are_refused(eb_prefix, ebsif, date):
    """One pattern for the dates of extensions: what is accepted is found by kernels and interpreters, too."""
    said = ebsif("extend", BASE, "--add", "rich", "--name", "x", f"--date={date}", "-n", status=3).err
    assert f"--date '{date}': use only letters, digits, _ and . before a number" in said


def test_versions_as_pip_orders_them():
    """H-01: the order of versions is that of the packaging library, which easyblocks don't have."""
    chosen = random.Random(1)
    before = ["rc1", "rc2", "rc10", "rc", "a1", "b2", ".dev1"]
    ends = ["", "", *before, ".post1", "a1.dev1", ".post1.dev2", "rc1.post1", "+cpu"]
    numbers = [".".join(str(chosen.choice([0, 0, 1, 2, 10])) for _ in range(chosen.randint(1, 4))) for _ in range(300)]
    versions = sorted({number + chosen.choice(ends) for number in numbers})
    for _ in range(3000):
        one, other = chosen.choice(versions), chosen.choice(versions)
        expected = Version(one) < Version(other)
        assert (newest.version_key(one) < newest.version_key(other)) == expected, (one, other)


def test_the_order_in_bash(tmp_path):
    """H-01: files that start the newest extension take the one that Python takes."""
    chosen = random.Random(2)
    numbers = [".1", ".2", ".10", ".02", ".0"]
    ends = [chosen.choices(numbers, k=chosen.choice([0, 0, 1, 2])) for _ in range(200)]
    dates = sorted({"".join([*chosen.choices("019aAbZ_v", k=chosen.randint(1, 4)), *end]) for end in ends})
    lines, expected = [], []
    for number in range(100):
        start = tmp_path / f"{number} it's" / "my name"
        some = chosen.sample(dates, 3)
        for date in some:
            (tmp_path / f"{start}-{date}/record").mkdir(parents=True)
        (tmp_path / f"{start}-zzz.replaced/record").mkdir(parents=True)
        (tmp_path / f"{start}-zzzz").mkdir()
        lines.append(newest.find_newest(shlex.quote(str(start)), "record") + 'echo "$ebsif_newest"\n')
        expected.append(f"{start}-{max(some, key=newest.date_key)}")
    assert printed(["/bin/bash", "-c", "".join(lines)]).splitlines() == expected
