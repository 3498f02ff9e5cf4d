"""Apps for Open OnDemand, rendered by Ruby as Open OnDemand renders them; its rules are those of its sources (4.1)."""

import json
import re
import shlex
import subprocess
from pathlib import Path

import pytest
import yaml
from ebsif import cli
from ebsif.catalog import site
from ondemand import render
from prefixes import MINE
from support import printed, write_program

# app-development/interactive/form.rst
WIDGETS = "check_box hidden_field number_field path_selector radio_button select text_area text_field"
OPTIONS = "widget value label required help pattern min max step options cacheable show_files directory"
# OodCore::Job::Script
SCRIPT = """
    accounting_id email_on_started gpus_per_node job_environment job_name native qos queue_name reservation_id wall_time
"""
SUPPORTED = sorted(name for name in site.names() if site.read(name).scheduler.kind != "flux")


@pytest.fixture
def module(eb_prefix, tmp_path):
    """A module with JupyterLab, whose interpreter prints what it gets."""
    root = eb_prefix.install(MINE, packages=("jupyterlab==4.4.0",))
    write_program(root / "interpreter/python", '#!/bin/bash\nprintf "%s\\n" "$PWD" "$EBSIF_USER_SOFTWARE" "$@"\n')
    return MINE


@pytest.mark.nightly
@pytest.mark.parametrize("name", SUPPORTED)
def test_the_app_fits_open_ondemand(module, tmp_path, name):
    """J-07: manifest, form and submission keep the rules of Open OnDemand; so does each choice that the form has."""
    assert cli.main(["ood", module, "--site", name, "-o", "app", "--cluster", "one"]) == 0
    app = tmp_path / "app"
    manifest = yaml.safe_load((app / "manifest.yml").read_text())
    assert manifest["role"] == "batch_connect"
    assert all(isinstance(text, str) for text in manifest.values())
    form = yaml.safe_load(render(app / "form.yml.erb"))
    assert form.keys() == {"cluster", "form", "attributes"}
    assert form["cluster"] == "one"
    names, attributes = form["form"], form["attributes"]
    assert set(attributes) <= set(names)
    assert len(set(names)) == len(names)
    # it uses them as methods of an OpenStruct, and in names of HTML
    taken = printed(["ruby", "-rostruct", "-e", "puts OpenStruct.new.methods"]).split()
    assert not set(names) & set(taken)
    for one in attributes.values():
        assert set(one) <= set(OPTIONS.split())
        assert one.get("widget", "text_field") in WIDGETS.split()
        for option in one.get("options") or ():
            label, value, data = option
            assert label == value
            for key in data:
                assert re.fullmatch("data-(hide|max|set)-(.*)", key)[2] in names
    chosen = {name: str(one.get("value") or "") for name, one in attributes.items()}
    for partition in [label for label, _, _ in attributes.get("bc_queue", {}).get("options", [("", "", {})])]:
        for number in ("1", "9999"):
            values = {**chosen, "account": "project_1", "bc_queue": partition, "cpus": number, "gpus": number}
            submit = yaml.safe_load(render(app / "submit.yml.erb", **values))
            assert submit.keys() == {"batch_connect", "script"}
            assert submit["batch_connect"] == {"template": "basic"}
            assert set(submit["script"]) <= set(SCRIPT.split())
            assert all(isinstance(word, str) for word in submit["script"]["native"])
    for path in (app / "template").iterdir():
        subprocess.run(["bash", "-n"], input=render(path, directory="", user_software=""), text=True, check=True)


def test_resources(module, tmp_path):
    """J-07: a job gets the share of memory that belongs to its CPUs; of exclusive nodes, everything."""
    assert cli.main(["ood", module, "--site", "lumi", "-o", "lumi"]) == 0
    assert cli.main(["ood", module, "--site", "derecho", "-o", "derecho"]) == 0

    def native(name, **values):
        text = render(tmp_path / name / "submit.yml.erb", account="project_1", **values)
        return yaml.safe_load(text)["script"]["native"]

    one = ["--nodes=1", "--ntasks=1"]
    expected = [*one, "--cpus-per-task=7", "--gpus-per-node=1", "--mem=61440M"]
    assert native("lumi", bc_queue="small-g", cpus="7", gpus="1") == expected
    assert native("lumi", bc_queue="small-g", cpus="", gpus="0") == [*one, "--cpus-per-task=1", "--mem=8777M"]
    expected = ["--cpus-per-task=56", "--gpus-per-node=8", "--mem=491520M"]
    assert native("lumi", bc_queue="small-g", cpus="500", gpus="9")[2:] == expected
    expected = ["--cpus-per-task=56", "--gpus-per-node=8", "--mem=491520M"]
    assert native("lumi", bc_queue="standard-g", cpus="7", gpus="1")[2:] == expected
    assert native("derecho", bc_queue="main", cpus="16", gpus="1") == ["-l", "select=1:ncpus=16:ngpus=1"]


def test_files_that_were_changed(module, tmp_path, capsys):
    """C-04: an app whose files were changed stays without --overwrite; another app's are replaced."""
    words = ["ood", module, "--site", "lumi", "-o", "app"]
    assert cli.main(words) == cli.main(words) == 0
    path = tmp_path / "app/form.yml.erb"
    text = path.read_text()
    path.write_text("edited")
    assert cli.main(words) == 3
    assert "--overwrite" in capsys.readouterr().err
    assert path.read_text() == "edited"
    assert cli.main([*words, "--overwrite"]) == 0
    assert path.read_text() == text
    assert cli.main(["ood", module, "--site", "derecho", "-o", "app"]) == 0


def test_accounts(module, tmp_path):
    """J-07: the form lists the Unix groups of the person where these are accounts, else asks for a required one."""
    folder = tmp_path / "sites/mine"
    folder.mkdir(parents=True)
    group = printed(["id", "-gn"]).strip()
    (folder / "site.yaml").write_text(
        f"name: mine\ndescription: a machine\nscheduler: {{account: {{required: true, groups: '{group[:-1]}?'}}}}\n"
    )
    assert cli.main(["ood", module, "--catalog", "sites", "--site", "mine", "-o", "app"]) == 0
    form = yaml.safe_load(render(tmp_path / "app/form.yml.erb"))
    assert form["attributes"]["account"]["options"] == [group]
    submit = yaml.safe_load(render(tmp_path / "app/submit.yml.erb", cpus="1", account="a: b"))
    assert submit["script"]["accounting_id"] == "a: b"
    for required in (True, False):
        (folder / "site.yaml").write_text(
            f"name: mine\ndescription: a machine\nscheduler: {{account: {{required: {str(required).lower()}}}}}\n"
        )
        app = f"app-{required}"
        assert cli.main(["ood", module, "--catalog", "sites", "--site", "mine", "-o", app]) == 0
        form = yaml.safe_load(render(tmp_path / app / "form.yml.erb"))
        assert ("bc_account" in form["form"]) == required


# what YAML, ERB, Ruby and a shell take for their own
HOSTILE = """a'b"c %> <%= system("touch pwned") %> #{system("touch pwned")} $(touch pwned) \\' : - {x}"""


def test_values_with_any_characters(module, tmp_path):
    """J-07, P-06: what a profile and the command line have is data in all files of the app."""
    (tmp_path / "sites/mine").mkdir(parents=True)
    scheduler = {
        "kind": "slurm",
        "options": [shlex.quote(f"--comment={HOSTILE}")],
        "account": {"groups": HOSTILE},
        "default_partition": HOSTILE,
        "partitions": {HOSTILE: {"tasks": 1, "cpus_per_task": 4, "qos": HOSTILE}},
    }
    (tmp_path / "sites/mine/site.yaml").write_text(
        json.dumps({"name": "mine", "description": "x", "scheduler": scheduler})
    )
    words = ["ood", module, "--catalog", "sites", "--site", "mine", "-o", "app", "--cluster", HOSTILE]
    assert cli.main(words) == 0
    form = yaml.safe_load(render(tmp_path / "app/form.yml.erb"))
    assert form["cluster"] == HOSTILE and form["attributes"]["bc_queue"]["value"] == HOSTILE
    submit = yaml.safe_load(render(tmp_path / "app/submit.yml.erb", bc_queue=HOSTILE, cpus="2", account="x"))
    assert f"--comment={HOSTILE}" in submit["script"]["native"] and f"--qos={HOSTILE}" in submit["script"]["native"]
    assert yaml.safe_load((tmp_path / "app/manifest.yml").read_text())["category"] == "Interactive Apps"
    assert not list(tmp_path.rglob("pwned")) and not Path("pwned").exists()


def test_paths_with_any_characters(module, tmp_path):
    """J-07: what a person types is data in the script."""
    assert cli.main(["ood", module, "--site", "local", "-o", "app"]) == 0
    script = tmp_path / "app/template/script.sh.erb"
    assert script.stat().st_mode & 0o100
    folder = tmp_path / "a 'b' $(touch c) \"d\"; <%= 1 %>"
    folder.mkdir()

    def run(cwd, **values):
        environment = {"PATH": "/usr/bin:/bin", "CONFIG_FILE": "/c", "HOME": str(tmp_path)}
        return printed(["bash", "-c", render(script, **values)], cwd=cwd, env=environment)

    said = run(tmp_path, directory=str(folder), user_software=f"{folder}/own")
    expected = [str(folder), f"{folder}/own", "-m", "jupyterlab", "--config=/c", f"--ServerApp.root_dir={folder}"]
    assert said.splitlines() == expected
    assert run("/", directory="", user_software="").startswith(f"{tmp_path}\n\n")


def test_what_is_missing(eb_prefix, tmp_path, capsys):
    """J-07, J-08: without JupyterLab the message has the command that adds it; Flux isn't supported."""
    root = eb_prefix.install(MINE)
    assert cli.main(["ood", MINE, "-o", "app"]) == 3
    assert f"ebsif extend {MINE} --add jupyterlab" in capsys.readouterr().err
    eb_prefix.add(root, "jupyterlab", "4.4.0")
    folder = tmp_path / "sites/mine"
    folder.mkdir(parents=True)
    (folder / "site.yaml").write_text("name: mine\ndescription: a machine\nscheduler: {kind: flux}\n")
    assert cli.main(["ood", MINE, "--catalog", "sites", "--site", "mine", "-o", "app"]) == 3
    assert "no support for the scheduler of mine, flux" in capsys.readouterr().err
