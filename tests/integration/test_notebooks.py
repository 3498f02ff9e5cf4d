"""A notebook with the image's torch and a person's packages, in Jupyter of the host and JupyterLab of the container."""

import json
import os
import re
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

import pytest
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait
from slurm import NODES
from support import CHECKOUT, blocks
from workbench import MODULE, fetch, until_it_works

HOST, LAB = (one for one in blocks("docs/jupyter.md") if re.search("notebook.ipynb|jupyter lab", one))
(PROXIES,) = (one for one in blocks("docs/tracking.md", "python") if "ServerProxy" in one)


def outputs(path):
    """Return what the cells of a notebook (Path) have printed, and whether there is a plot."""
    cells = json.loads(path.read_text())["cells"]
    shown = [one for cell in cells for one in cell.get("outputs", ())]
    return "".join("".join(one.get("text", "")) for one in shown), ["image/png" in one.get("data", {}) for one in shown]


@pytest.fixture(scope="module")
def executed(workbench):
    """The notebook after the commands of the documentation have run it on the host."""
    workbench.load(HOST.replace("install lab", f"install {MODULE}"), load=False)
    return workbench.folder / "executed.ipynb"


def test_a_notebook_in_a_jupyter_of_the_host(executed):
    """J-01, J-02: nbclient of the host runs it with torch of the image and packages of the user, and a plot."""
    text, plots = outputs(executed)
    assert re.search(r"^torch 2\.13\.0\+cpu of the image, in /opt/miniconda3/envs/pytorch/", text, re.MULTILINE)
    assert re.search("^torchmetrics, added, in /user-software/venv/pytorch/", text, re.MULTILINE)
    before, after = re.search(r"^loss ([\d.]+) -> ([\d.]+)$", text, re.MULTILINE).groups()
    assert float(after) < float(before) / 10
    assert plots[-1]


@pytest.mark.nightly
def test_the_same_notebook_in_jupyterlab_of_the_container(workbench, executed, browser):
    """
    J-06: JupyterLab in a job, through SSH, runs it in the module's kernel with the same result, and has a token.

    Its TensorBoard and MLflow need no way of their own. EBSIF_TEST_PICTURES names a directory for the picture.
    """
    root = Path(workbench.load("echo $CONTAINERROOT").stdout.strip())
    notebook = json.loads((workbench.folder / "notebook.ipynb").read_text())
    (spec,) = (root / "share/jupyter/kernels").iterdir()
    notebook["metadata"]["kernelspec"] = {"name": spec.name, "display_name": spec.name}
    path = workbench.folder / "lab.ipynb"
    path.write_text(json.dumps(notebook))
    settings = Path(workbench.own["JUPYTER_CONFIG_DIR"])
    news = settings / "lab/user-settings/@jupyterlab/apputils-extension/notification.jupyterlab-settings"
    news.parent.mkdir(parents=True)
    news.write_text('{"fetchNews": "false", "checkForUpdates": false}')
    # tests may run as root
    (settings / "jupyter_server_config.py").write_text(f"{PROXIES}c.ServerApp.allow_root = True\n")
    command = re.search("`(ssh -N .*?)`", (CHECKOUT / "docs/jupyter.md").read_text())[1]
    with workbench.running(LAB) as job:
        port, token = job.printed(r"http://localhost:(\d+)/lab\?(token=\w+)").groups()
        with workbench.forward(command.replace("PORT", port).replace("NODE", NODES[0])) as (local,):
            url = f"http://localhost:{local}"
            with pytest.raises(urllib.error.HTTPError, match="403"):
                urllib.request.urlopen(f"{url}/api/kernels", timeout=300)
            run_all_cells(browser, f"{url}/lab/tree/{path.name}?{token}")
            picture = Path(os.environ.get("EBSIF_TEST_PICTURES", workbench.folder), "notebook.png")
            browser.save_screenshot(str(picture))
            assert picture.stat().st_size > 10000
            until_it_works(lambda: saved(path))
            assert outputs(path) == outputs(executed)
            assert "notebook" in json.loads(fetch(f"{url}/tensorboard/data/runs?{token}"))
            page = fetch(f"{url}/mlflow/?{token}")
            script = re.search(r'<script[^>]* src="([^"]*)"', page)[1]
            assert len(fetch(urllib.parse.urljoin(f"{url}/mlflow/", f"{script}?{token}"))) > 10000


def run_all_cells(browser, url):
    """Open a notebook in JupyterLab, choose "Run All Cells", wait for the plot, and save the notebook."""
    browser.get(url)
    # pages replace elements while they are looked at
    wait = WebDriverWait(browser, 300, ignored_exceptions=[StaleElementReferenceException])
    idle = "//*[@id='jp-main-statusbar']//*[contains(., '| Idle')]"
    # before that, JupyterLab would ask for a kernel
    wait.until(lambda _: browser.find_elements("xpath", idle))
    browser.find_element("xpath", "//*[@class='lm-MenuBar-itemLabel'][.='Run']").click()
    wait.until(lambda _: browser.find_elements("css selector", "[data-command='runmenu:run-all']"))[0].click()
    plot = wait.until(lambda _: browser.find_elements("css selector", ".jp-OutputArea-output img"))[0]
    wait.until(lambda _: browser.find_elements("xpath", idle))
    browser.execute_script("arguments[0].scrollIntoView(false)", plot)
    ActionChains(browser).key_down(Keys.CONTROL).send_keys("s").key_up(Keys.CONTROL).perform()


def saved(path):
    """Raise OSError until a notebook (Path) has the plot."""
    if not any(outputs(path)[1]):
        raise OSError(f"{path} hasn't been saved with its outputs")
