"""Apps for Open OnDemand, rendered by Ruby as Open OnDemand renders them; its rules are those of its sources (4.1)."""

import re
import subprocess
from pathlib import Path

import pytest
import yaml
from ebsif import cli
from ebsif.catalogue import site
from ondemand import render
from prefixes import MINE

# app-development/interactive/form.rst
WIDGETS = {"check_box", "hidden_field", "number_field", "path_selector", "radio_button", "select", "text_area",
           "text_field"}
OPTIONS = {"widget", "value", "label", "required", "help", "pattern", "min", "max", "step", "options", "cacheable",
           "show_files", "directory"}
# OodCore::Job::Script
SCRIPT = {"accounting_id", "email_on_started", "gpus_per_node", "job_environment", "job_name", "native", "qos",
          "queue_name", "reservation_id", "wall_time"}
SUPPORTED = sorted(name for name in site.names() if site.read(name).scheduler.kind != "flux")


@pytest.fixture
def module(eb_prefix, tmp_path):
    """A module with JupyterLab, whose interpreter prints what it gets."""
    root = eb_prefix.install(MINE, packages=("jupyterlab==4.4.0",))
    interpreter = root / "interpreter/python"
    interpreter.parent.mkdir()
    interpreter.write_text('#!/bin/bash\nprintf "%s\\n" "$PWD" "$EBSIF_USER_SOFTWARE" "$@"\n')
    interpreter.chmod(0o755)
    return MINE


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
    taken = subprocess.run(["ruby", "-rostruct", "-e", "puts OpenStruct.new.methods"], capture_output=True, text=True,
                           check=True).stdout.split()
    assert not set(names) & set(taken)
    for one in attributes.values():
        assert set(one) <= OPTIONS
        assert one.get("widget", "text_field") in WIDGETS
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
            assert set(submit["script"]) <= SCRIPT
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
    assert native("lumi", bc_queue="small-g", cpus="7", gpus="1") == [
        *one, "--cpus-per-task=7", "--gpus-per-node=1", "--mem=61440M"]
    assert native("lumi", bc_queue="small-g", cpus="", gpus="0") == [*one, "--cpus-per-task=1", "--mem=8777M"]
    assert native("lumi", bc_queue="small-g", cpus="500", gpus="9")[2:] == [
        "--cpus-per-task=56", "--gpus-per-node=8", "--mem=491520M"]
    assert native("lumi", bc_queue="standard-g", cpus="7", gpus="1")[2:] == [
        "--cpus-per-task=56", "--gpus-per-node=8", "--mem=491520M"]
    assert native("derecho", bc_queue="main", cpus="16", gpus="1") == ["-l", "select=1:ncpus=16:ngpus=1"]


def test_files_that_were_changed(module, tmp_path, capsys):
    """N11, C-04: an app and a course whose files were changed stay without --overwrite; another app's are replaced."""
    for more, name in (((), "form.yml.erb"), (("--course", "a"), "a.lua")):
        words = ["ood", module, "--site", "lumi", "-o", "app" if not more else "courses", *more]
        assert cli.main(words) == cli.main(words) == 0
        path = tmp_path / words[5] / name
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
    group = subprocess.run(["id", "-gn"], capture_output=True, text=True, check=True).stdout.strip()
    (folder / "site.yaml").write_text("name: mine\ndescription: a machine\n"
                                      f"scheduler: {{account: {{required: true, groups: '{group[:-1]}?'}}}}\n")
    assert cli.main(["ood", module, "--catalogue", "sites", "--site", "mine", "-o", "app"]) == 0
    form = yaml.safe_load(render(tmp_path / "app/form.yml.erb"))
    assert form["attributes"]["account"]["options"] == [group]
    submit = yaml.safe_load(render(tmp_path / "app/submit.yml.erb", cpus="1", account="a: b"))
    assert submit["script"]["accounting_id"] == "a: b"
    for required in (True, False):
        (folder / "site.yaml").write_text("name: mine\ndescription: a machine\n"
                                          f"scheduler: {{account: {{required: {str(required).lower()}}}}}\n")
        app = f"app-{required}"
        assert cli.main(["ood", module, "--catalogue", "sites", "--site", "mine", "-o", app]) == 0
        form = yaml.safe_load(render(tmp_path / app / "form.yml.erb"))
        assert ("bc_account" in form["form"]) == required


def test_paths_with_any_characters(module, tmp_path):
    """J-07: what a person types is data in the script."""
    assert cli.main(["ood", module, "--site", "local", "-o", "app"]) == 0
    script = tmp_path / "app/template/script.sh.erb"
    assert script.stat().st_mode & 0o100
    folder = tmp_path / "a 'b' $(touch c) \"d\"; <%= 1 %>"
    folder.mkdir()
    text = render(script, directory=str(folder), user_software=f"{folder}/own")
    said = subprocess.run(["bash", "-c", text], capture_output=True, text=True, check=True, cwd=tmp_path,
                          env={"PATH": "/usr/bin:/bin", "CONFIG_FILE": "/c", "HOME": str(tmp_path)}).stdout
    assert said.splitlines() == [str(folder), f"{folder}/own", "-m", "jupyterlab", "--config=/c",
                                 f"--ServerApp.root_dir={folder}"]
    text = render(script, directory="", user_software="")
    said = subprocess.run(["bash", "-c", text], capture_output=True, text=True, check=True, cwd="/",
                          env={"PATH": "/usr/bin:/bin", "CONFIG_FILE": "/c", "HOME": str(tmp_path)}).stdout
    assert said.startswith(f"{tmp_path}\n\n")


COURSE = """\
-- Jupyter: only files with this word are listed
help([[JupyterLab with the packages of {module}, for the course deep-learning]])
prepend_path("MODULEPATH", "{modules}")
depends_on("{module}")
-- `python` of the module, even if it has no wrappers
prepend_path("PATH", "{root}/interpreter")
setenv("_COURSE_BASE_NAME", "deep-learning")
setenv("_COURSE_NOTEBOOK_TYPE", "lab")
setenv("_COURSE_GIT_REPO", "https://example.org/courses/intro-to-dl.git")
setenv("_COURSE_GIT_REF", "v1")
setenv("_COURSE_NOTEBOOK", "intro-to-dl/day1/01-start.ipynb")
"""


def test_a_course(module, eb_prefix, tmp_path, capsys):
    """J-07: the two files that LUMI's app for courses reads (lumi-userguide, runjobs/webui/jupyter-for-courses.md)."""
    arguments = ["ood", module, "--site", "lumi", "--course", "deep-learning", "-o", "www_lumi_modules"]
    url = "https://example.org/courses/intro-to-dl.git"
    assert cli.main([*arguments, "--repository", url, "--ref", "v1", "--notebook", "day1/01-start.ipynb"]) == 0
    folder = tmp_path / "www_lumi_modules"
    assert (folder / "deep-learning.lua").read_text() == COURSE.format(
        module=module, modules=eb_prefix.modules, root=eb_prefix.software / module)
    assert yaml.safe_load((folder / "deep-learning-resources.yml").read_text()) == {
        "cores": 7, "time": "01:00:00", "partition": "small-g", "mem": "60GB", "gpus": 1}
    assert cli.main([*arguments[:-1], "no-repository"]) == 0
    (eb_prefix.modules / f"{module}.lua").unlink()
    assert cli.main(["ood", str(eb_prefix.software / module), *arguments[2:]]) == 3
    assert "add its directory with `module use`" in capsys.readouterr().err
    assert "_GIT_" not in (tmp_path / "no-repository/deep-learning.lua").read_text()


@pytest.mark.parametrize(("arguments", "status", "said"), [
    (["--course", "a/b"], 3, "'a/b' can't be the name of a course"),
    (["--course", "a", "--ref", "v1"], 3, "name it with --repository"),
    (["--course", "a", "--repository", "https://me:hunter2@example.org/a.git"], 3, "contains a password or token"),
    (["--ref", "v1"], 2, "name it with --course"),
    (["--course", "a", "--cluster", "b"], 2, "the files of a course don't name a cluster"),
])
def test_wrong_use(module, capsys, arguments, status, said):
    """J-07: errors name the remedy, and no credential gets into files that others read."""
    try:
        assert cli.main(["ood", module, "-o", "app", *arguments]) == status
    except SystemExit as end:
        assert end.code == status
    assert said in " ".join(capsys.readouterr().err.split())
    assert not Path("app").exists()


def test_what_is_missing(eb_prefix, tmp_path, capsys):
    """J-07, J-08: without JupyterLab the message has the command that adds it; Flux isn't supported."""
    root = eb_prefix.install(MINE)
    assert cli.main(["ood", MINE, "-o", "app"]) == 3
    assert f"ebsif extend {MINE} --add jupyterlab --name jupyter --install" in capsys.readouterr().err
    eb_prefix.add(root, "jupyterlab", "4.4.0")
    folder = tmp_path / "sites/mine"
    folder.mkdir(parents=True)
    (folder / "site.yaml").write_text("name: mine\ndescription: a machine\nscheduler: {kind: flux}\n")
    assert cli.main(["ood", MINE, "--catalogue", "sites", "--site", "mine", "-o", "app"]) == 3
    assert "no support for the scheduler of mine, flux" in capsys.readouterr().err
