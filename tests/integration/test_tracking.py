"""TensorBoard and MLflow on a compute node and in Jupyter, as docs/tracking.md says."""

import contextlib
import json
import os
import re
import stat
import time
import urllib.request
from pathlib import Path

import pytest
from account import as_root
from ebsif_command import run_ebsif
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.support.ui import WebDriverWait
from support import attempt, blocks
from workbench import fetch, until_it_works

pytestmark = pytest.mark.nightly
DOCUMENT = "docs/tracking.md"
INSTALL, SUBMIT = blocks(DOCUMENT)
LOG, _ = blocks(DOCUMENT, "python")
DIRECTORY = """
try:
    mlflow.set_tracking_uri("mlruns")
    mlflow.start_run()
except mlflow.MlflowException as error:
    print(error)
"""


@pytest.fixture(scope="module")
def logged(workbench):
    """The directory in which the program of the documentation has logged."""
    (workbench.folder / "log.py").write_text(LOG + DIRECTORY)
    said = workbench.load("srun --ntasks=1 singularity exec $SIF python log.py").stdout
    # what the documentation says about directories
    assert "MLFLOW_ALLOW_FILE_STORE=true" in said
    return workbench.folder


def test_the_command_that_adds_them(workbench, tmp_path):
    """ebsif accepts the documented command; what it installs here comes from elsewhere."""
    result = run_ebsif([*INSTALL.split()[1:], "--dry-run"], tmp_path, workbench.environment(EBSIF_SITE="local"))
    assert result.returncode == 0, result.stderr
    assert "'requirements': ['tensorboard', 'mlflow']" in result.stdout


def post(url, **data):
    """Return the answer to a request in JSON, once the server is ready."""
    request = urllib.request.Request(url, json.dumps(data).encode(), {"Content-Type": "application/json"})

    def read():
        with urllib.request.urlopen(request, timeout=300) as answer:
            return json.load(answer)

    return until_it_works(read)


def test_both_through_ssh(workbench, logged, browser):
    """
    A job serves both on sockets, the printed command forwards them, a browser shows the loss.

    EBSIF_TEST_PICTURES names a directory for the pictures in the documentation.
    """
    pictures = Path(os.environ.get("EBSIF_TEST_PICTURES", logged))
    submit = f"umask 077; {SUBMIT.partition(chr(10))[0]}"
    with workbench.submitted(submit, "tracking.out") as job:
        command = job.printed("^on your computer: (ssh .*)$")[1]
        # as docs/jupyter.md says of a job's output
        assert stat.S_IMODE(job.output.stat().st_mode) == 0o600
        with workbench.forward(command) as (tensorboard, mlflow):
            # nobody has asked for a password
            assert json.loads(fetch(f"http://localhost:{tensorboard}/data/runs")).count("first") == 1
            url = f"http://localhost:{mlflow}"
            (run,) = post(f"{url}/api/2.0/mlflow/runs/search", experiment_ids=["0"])["runs"]
            assert [(one["key"], one["step"]) for one in run["data"]["metrics"]] == [("loss", 49)]
            page = f"http://localhost:{tensorboard}/#timeseries"
            show(browser, page, ".series-view > svg > path", ".settings-button", pictures / "tensorboard.png")
            page = f"{url}/#/experiments/0/runs/{run['info']['run_id']}/model-metrics"
            assistant = "[data-component-id='mlflow.assistant.chat_panel.close']"
            show(browser, page, ".js-plotly-plot path.js-line", assistant, pictures / "mlflow.png")
        sockets = re.findall(r"-L \d+:(\S+)", command)
        check_that_nobody_else_can_connect(sockets, job, workbench.cluster.configuration)


def show(browser, url, selector, panel, picture):
    """Wait until a page shows an element, close a panel beside it with its button if there is one, save a picture."""
    browser.get(url)
    # pages replace elements while they are looked at
    wait = WebDriverWait(browser, 300, ignored_exceptions=[StaleElementReferenceException])
    wait.until(lambda _: browser.find_elements("css selector", selector))
    for button in browser.find_elements("css selector", panel)[:1]:
        button.click()
        # drawn again, in the new size
        time.sleep(1)
    wait.until(lambda _: browser.find_elements("css selector", selector))
    browser.save_screenshot(str(picture))
    assert picture.stat().st_size > 10000


def check_that_nobody_else_can_connect(paths, job, configuration):
    """Another account can't open the sockets, and no process of a job, in the cluster of a configuration, a port."""
    code = "import socket, sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])"
    for path in paths:
        with as_root():
            refused = attempt(["runuser", "-u", "nobody", "--", "python3", "-c", code, path])
        assert "PermissionError" in refused.stderr
    wanted = {f"SLURM_JOB_ID={job.number}".encode(), f"SLURM_CONF={configuration}".encode()}
    processes = [one for one in Path("/proc").glob("[0-9]*") if wanted <= set(content(one / "environ").split(b"\0"))]
    assert len(processes) > 2
    lines = [line.split() for name in ("tcp", "tcp6") for line in Path("/proc/net", name).read_text().splitlines()]
    listening = {words[9] for words in lines if words[3] == "0A"}
    for process in processes:
        sockets = []
        # it may end
        with contextlib.suppress(OSError):
            for one in (process / "fd").iterdir():
                sockets += re.findall(r"^socket:\[(\d+)\]$", str(one.readlink()))
        assert not listening & {*sockets}, content(process / "cmdline")


def content(path):
    """Return what a file of a process contains (bytes), nothing if the process has ended."""
    try:
        return path.read_bytes()
    except OSError:
        return b""
