"""Editors and web portals, which use a module without loading it: interpreter, debugger, app for Open OnDemand."""

import http.cookiejar
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid
from pathlib import Path

import pytest
import yaml
from account import as_root
from debugger import Debugger, connect
from ebsif_command import run_ebsif
from ondemand import render
from selenium.common.exceptions import (
    ElementClickInterceptedException,
    ElementNotInteractableException,
    StaleElementReferenceException,
)
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait
from slurm import free_ports
from support import CONTAINER_FILES, attempt, blocks, printed, write_program

# The commands of the documentation, and the names in it.
INTERPRETER, APP = blocks("docs/editors.md", "bash")
(DEBUG,) = [one for one in blocks("docs/debugging.md", "bash") if "--listen" in one]
(ATTACH,) = blocks("docs/debugging.md", "json")
MODULE = "PyTorch/2.13.0-demo"

PROGRAM = """\
import subprocess, sys
def square(number):
    result = number * number
    return result
if len(sys.argv) > 1:
    square(3)
else:
    square(2)
    subprocess.run([sys.executable, __file__, "child"])
"""
LINE = 3

# What VS Code (python_files/interpreterInfo.py) and PyCharm ask an interpreter.
QUESTION = """\
import json, sys
print(json.dumps({"version": list(sys.version_info[:3]), "prefix": sys.prefix, "executable": sys.executable,
                  "path": sys.path, "isolated": sys.flags.isolated}))
"""

PLOT = "import sys\nimport matplotlib.pyplot as plt\n\nplt.plot([n ** 2 for n in range(50)])\nplt.title(sys.prefix);"
CELL = {"id": "plot", "cell_type": "code", "metadata": {}, "execution_count": None, "outputs": [], "source": PLOT}
KERNEL = {"kernelspec": {"name": "python3", "display_name": "Python 3"}}
NOTEBOOK = {"nbformat": 4, "nbformat_minor": 5, "metadata": KERNEL, "cells": [CELL]}

# Runs a cell in a kernel, and ends it.
CLIENT = """\
import sys
import tempfile
from jupyter_client import BlockingKernelClient
client = BlockingKernelClient(connection_file=sys.argv[1])
client.load_connection_file()
client.start_channels()
client.wait_for_ready(60)
client.execute_interactive("import os, sys; print(sys.prefix, os.getcwd())", timeout=300)
client.shutdown()
"""

# What Open OnDemand's job script does around the scripts of an app, in its order.
JOB = """\
cd "$1"
host=localhost
export host
find_port() { "$python" -c 'import socket; s = socket.socket(); s.bind(("", 0)); print(s.getsockname()[1])'; }
create_passwd() { tr -cd a-zA-Z0-9 </dev/urandom | head -c "$1"; }
wait_until_port_used() {
    for ((i = 0; i < $2 * 10; i++)); do
        ! (: <"/dev/tcp/${1%:*}/${1#*:}") 2>/dev/null || return 0
        kill -0 "$SCRIPT_PID" || return 1
        sleep 0.1
    done
    return 1
}
clean_up() { exit "${1:-0}"; }
source before.sh
# tests may run as root
echo 'c.ServerApp.allow_root = True' >>"$CONFIG_FILE"
./script.sh &
SCRIPT_PID=$!
source after.sh
(umask 077; printf 'host: %s\\nport: %s\\npassword: %s\\n' "$host" "$port" "$password" >connection.yml)
wait "$SCRIPT_PID" || clean_up 1
"""

# multiprocessing starts Python again by sys.executable
SPAWN = """\
import multiprocessing, sys
def square(number):
    result = number * number
    return result
if __name__ == "__main__":
    square(2)
    child = multiprocessing.get_context("spawn").Process(target=square, args=(3,))
    child.start()
    child.join()
    sys.exit(child.exitcode)
"""


OF_HOME = "IPYTHONDIR JUPYTER_CONFIG_DIR JUPYTER_DATA_DIR JUPYTER_RUNTIME_DIR MPLCONFIGDIR"


class Place:
    """An installation with JupyterLab and debugpy in its user software, a directory; nothing has loaded its module."""

    def __init__(self, installed, folder):
        """Copy the installation and add the packages."""
        self.site = installed.copy(folder, installed.WRITABLE)
        self.module, self.root = installed.WRITABLE, self.site.root(installed.WRITABLE)
        packages = next(self.root.glob("user-software/venv/*/lib/python3*/site-packages"))
        command = [os.environ["EBSIF_TEST_UV"], "pip", "install", "-q", "--target", packages]
        command += ["--python-version", packages.parent.name.removeprefix("python")]
        subprocess.run([*command, "jupyterlab", "debugpy", "matplotlib"], check=True)
        # where pip in the container puts what isn't a module, and its Python
        venv = packages.parents[2]
        (packages / "share").rename(venv / "share")
        for script in (packages / "bin").glob("jupyter*"):
            program = re.sub("\\A.*?(?=^(?:import|from) )", "", script.read_text(), flags=re.DOTALL | re.MULTILINE)
            write_program(venv / "bin" / script.name, f"#!/user-software/venv/{venv.name}/bin/python\n{program}")
        self.python = self.root / "interpreter/python"
        self.environment = {
            "HOME": str(self.site.home),
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "LC_ALL": "C.UTF-8",
            # the runtime takes the home directory from the account
            **{name: str(self.site.home / name) for name in OF_HOME.split()},
        }
        settings = venv / "share/jupyter/lab/settings"
        settings.mkdir()
        quiet = {"fetchNews": "false", "checkForUpdates": False}
        (settings / "overrides.json").write_text(json.dumps({"@jupyterlab/apputils-extension:notification": quiet}))

    def run(self, *arguments, python=None, check=True, cwd=None, text=None, **environment):
        """Run the interpreter as an editor does; return the CompletedProcess."""
        return subprocess.run(
            [python or self.python, *arguments],
            env={**self.environment, **environment},
            text=True,
            cwd=cwd or self.site.work,
            input=text or "",
            capture_output=True,
            check=check,
        )

    def documented(self, script):
        """Run commands of the documentation with this module; return what they print."""
        script = script.replace(MODULE, self.module)
        return self.site.bash(f"PATH={sys.prefix}/bin:$PATH\n{script}", EBSIF_SITE="local").stdout

    def ebsif(self, *arguments, status=0, **environment):
        """Run ebsif; return what it printed."""
        result = run_ebsif(
            arguments, self.site.work, {**self.environment, "MODULEPATH": self.site.modules, **environment}
        )
        assert result.returncode == status, result.stderr
        return result.stdout + result.stderr


@pytest.fixture(scope="module")
def place(installations, tmp_path_factory):
    """The installation."""
    return Place(installations("Lmod-Lua"), tmp_path_factory.mktemp("editors"))


def test_the_interpreter_is_called_by_its_path(place, tmp_path):
    """J-04: a path is all that an editor needs; it is the module's Python, whatever the options and the directory."""
    printed = place.documented(INTERPRETER)
    assert printed.startswith(f"{place.python}\n/")
    assert "jupyterlab" in printed
    link, helper = tmp_path / "python3", place.site.home / "helper.py"
    link.symlink_to(place.python)
    helper.write_text(QUESTION)
    wanted = json.loads(place.run("-c", QUESTION).stdout)
    assert wanted["prefix"] == "/user-software/venv/pytorch"
    assert wanted["executable"].startswith(wanted["prefix"])
    for python in (place.python, link):
        for arguments in (("-",), ("-E", "-s", "-"), (helper,), ("-B", "-X", "dev", helper)):
            text = QUESTION if arguments[-1] == "-" else ""
            answer = json.loads(place.run(*arguments, python=python, text=text, cwd="/opt").stdout)
            assert (answer["prefix"], answer["executable"]) == (wanted["prefix"], wanted["executable"])
    assert json.loads(place.run("-I", helper).stdout)["isolated"]
    version = "Python " + ".".join(map(str, wanted["version"]))
    assert place.run("--version").stdout == place.run("-V").stdout == version + "\n"
    # in the container, where editors' servers start it again, and where it may be the first one on PATH
    again = place.run(
        "-c",
        f"""
import os, subprocess
os.environ['PATH'] = '{place.python.parent}:' + os.environ['PATH']
subprocess.run([{str(place.python)!r}, '-c', {QUESTION!r}], timeout=300)
""",
    )
    assert json.loads(again.stdout)["prefix"] == wanted["prefix"]
    assert place.run("-c", "raise SystemExit(7)", check=False).returncode == 7


@pytest.mark.nightly
def test_an_editor_by_ssh(place, ssh):
    """J-04: what VS Code's server asks after a login by SSH, without a module and a terminal."""
    helper = place.site.home / ".vscode-server/extensions/interpreterInfo.py"
    helper.parent.mkdir(parents=True)
    helper.write_text(QUESTION)

    def ask(*arguments):
        """Return what the interpreter prints in a session of SSH."""
        words = ["env", f"HOME={place.site.home}", str(place.python), *map(str, arguments)]
        return printed([ssh.path / "ssh", "nid001001", shlex.join(words)], stdin=subprocess.DEVNULL, cwd="/")

    assert json.loads(ask(helper))["prefix"] == "/user-software/venv/pytorch"
    assert "debugpy" in [one["name"] for one in json.loads(ask("-m", "pip", "list", "--format=json"))]


def test_in_a_job_the_interpreter_is_no_rank(place):
    """J-04, J-10: in a job with several tasks Python is Python, and has the job's variables."""
    printed = place.run(
        "-c",
        "import os; print(os.environ.get('RANK'), os.environ['SLURM_NTASKS'])",
        EBSIF_PYTHON_RANKS="SLURM_NTASKS",
        SLURM_NTASKS="8",
        SLURM_PROCID="3",
    ).stdout
    assert printed == "None 8\n"


def test_what_the_interpreter_cannot_do(place, request):
    """J-04: a script that the container doesn't see is named with the remedy, and so is an environment for it alone."""
    with as_root():
        folder = Path(tempfile.mkdtemp(prefix="ebsif-test-", dir="/opt"))
        folder.chmod(0o755)
        (folder / "helper.py").write_text("print('helps')")
    request.addfinalizer(as_root()(lambda: shutil.rmtree(folder)))
    result = place.run("-u", folder / "helper.py", check=False)
    assert result.returncode == 2
    assert f"{folder}/helper.py is not visible in the container: add its directory to APPTAINER_BIND" in result.stderr
    assert place.run(folder / "helper.py", APPTAINER_BIND=str(folder)).stdout == "helps\n"
    # what is no script of Python's need not be there
    for arguments, text in ((("-c", "import sys; print(*sys.argv)"), ""), (("-",), "import sys; print(*sys.argv)")):
        assert place.run(*arguments, folder / "helper.py", text=text).stdout == f"{arguments[0]} {folder}/helper.py\n"
    assert "make-venv" in place.run("-m", "venv", "--help").stderr


def test_a_file_that_is_the_interpreter(place, tmp_path):
    """J-04, J-05: a file for an editor knows user software and environment; files of others are kept."""
    written = place.site.work / "bin/python"
    before = os.umask(0o077)
    try:
        assert (
            place.ebsif("interpreter", place.module, "--write", "bin/python")
            == f"{written}\nchoose this file as interpreter\n"
        )
    finally:
        os.umask(before)
    # only who can read a script can execute it
    assert written.stat().st_mode & 0o777 == 0o700
    assert "/user-software/venv" in place.run("-c", QUESTION, python=written).stdout
    # where it is the first one on PATH in the container, as ~/.local/bin is for some
    first = {f"{runtime}ENV_PREPEND_PATH": str(written.parent) for runtime in ("APPTAINER", "SINGULARITY")}
    assert "/user-software/venv" in place.run("-c", QUESTION, python=written, **first).stdout
    place.ebsif("interpreter", place.module, "--write", "bin/python")
    (tmp_path / "python").write_text("mine")
    for path, said in ((tmp_path, "is a directory"), (tmp_path / "python", "choose another name")):
        assert said in place.ebsif("interpreter", place.module, "--write", path, status=3)
    assert (tmp_path / "python").read_text() == "mine"
    # an environment on top of the module
    made = place.site.bash(f"""
        module load {place.module}
        make-venv env && source env/bin/activate
        "{place.python}" -c 'import sys; print(sys.prefix)'
        "{sys.prefix}/bin/ebsif" interpreter --write bin/python-env
    """)
    assert f"{place.site.work}/env\n" in made.stdout
    answer = json.loads(place.run("-c", QUESTION, python=place.site.work / "bin/python-env").stdout)
    assert answer["prefix"] == f"{place.site.work}/env"
    # its own user software, without JupyterLab
    own = tmp_path / "own"
    (own / "user-software").mkdir(parents=True)
    place.ebsif("interpreter", place.module, "--write", "bin/python-own", EBSIF_USER_SOFTWARE=own)
    result = place.run("-c", "import jupyterlab", python=place.site.work / "bin/python-own", check=False)
    assert "No module named 'jupyterlab'" in result.stderr


def test_an_environment_that_is_gone(place):
    """J-05: the interpreter of a removed environment says so."""
    result = place.run("--version", EBSIF_VENV="/nowhere", check=False)
    assert (result.returncode, result.stdout) == (1, "")
    assert "the environment /nowhere doesn't exist any more" in result.stderr


def test_an_installation_without_interpreter(place, tmp_path):
    """J-04: an installation of an older version, and one without Python, are told apart."""
    copied = tmp_path / "copied"
    subprocess.run(["cp", "-al", place.root, copied], check=True)
    (copied / "interpreter/python").unlink()
    assert "install it again with `eb --rebuild " in place.ebsif("interpreter", copied, status=3)
    (copied / "bin/make-venv").unlink()
    assert "without Python" in place.ebsif("interpreter", copied, status=3)


@pytest.mark.nightly
def test_a_kernel_of_an_editor(place):
    """J-04: VS Code starts kernels with the interpreter, and passes a file in the home directory."""
    connection = place.site.home / "connection.json"
    names = [f"{name}_port" for name in ("shell", "iopub", "stdin", "control", "hb")]
    ports = dict(zip(names, free_ports(len(names))))
    connection.write_text(
        json.dumps(
            {**ports, "transport": "tcp", "ip": "127.0.0.1", "key": uuid.uuid4().hex, "signature_scheme": "hmac-sha256"}
        )
    )

    command = [place.python, "-Xfrozen_modules=off", "-m", "ipykernel_launcher", f"--f={connection}"]
    process = subprocess.Popen(
        command, start_new_session=True, env=place.environment, cwd=place.site.work, stdin=subprocess.DEVNULL
    )
    try:
        # otherwise the client may find no kernel, and give up
        connect(ports["hb_port"]).close()
        printed = place.run("-c", CLIENT, connection).stdout
        assert printed == f"/user-software/venv/pytorch {place.site.work}\n"
        assert process.wait(timeout=300) == 0
    finally:
        left = end(process)
    assert not left


@pytest.mark.nightly
def test_debugging(place):
    """J-09: breakpoints hold in the program, and in another one that it starts."""
    program, (port,), attach = place.site.work / "program.py", free_ports(1), json.loads(ATTACH)
    assert attach.pop("connect") == {"host": "127.0.0.1", "port": 5678}
    program.write_text(PROGRAM)
    place.ebsif("interpreter", place.module, "--write", place.site.home / "python")
    names = {"5678": str(port), "train.py": str(program), "~/.local/bin/python-torch": f"{place.site.home}/python"}
    process = subprocess.Popen(
        [re.sub("|".join(names), lambda found: names[found[0]], word) for word in DEBUG.split()],
        env=place.environment,
        cwd=place.site.work,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        parent = Debugger(port, **attach, subProcess=True)
        parent.break_at(program, LINE)
        assert parent.evaluate("number + 1") == "3"
        parent.ask("continue", threadId=parent.thread)
        started = parent.wait("debugpyAttach")
        child = Debugger(started["connect"]["port"], **started)
        child.break_at(program, LINE)
        assert child.evaluate("number") == "3"
        child.ask("continue", threadId=child.thread)
        child.socket.close()
        parent.socket.close()
        assert process.wait(timeout=300) == 0
    finally:
        left = end(process)
    assert not left


@pytest.mark.parametrize("way", ["interpreter", pytest.param("wrapper", marks=pytest.mark.nightly)])
def test_debugging_other_processes(place, way):
    """J-09: through interpreter and wrapper, breakpoints hold in a process of multiprocessing, too."""
    program, (port,) = place.site.work / "spawn.py", free_ports(1)
    program.write_text(SPAWN)
    wrapper = place.root / "bin/python"
    shutil.copy(CONTAINER_FILES / "share/ebsif/wrapper", wrapper)
    start = {"interpreter": f"exec '{place.python}'", "wrapper": f"module load {place.module}; exec python"}[way]
    process = subprocess.Popen(
        [
            "bash",
            "-c",
            f"{place.site.tool.init}\nexport MODULEPATH='{place.site.modules}'\n{start} -m debugpy --listen "
            f"127.0.0.1:{port} --wait-for-client '{program}'",
        ],
        env={**place.environment, **dict(place.site.tool.environment)},
        cwd=place.site.work,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        parent = Debugger(port, justMyCode=True, subProcess=True)
        parent.break_at(program, LINE)
        parent.ask("continue", threadId=parent.thread)
        # an editor attaches to each process, in any order: the other one looks after what they share
        attached = [parent.wait("debugpyAttach") for _ in range(2)]
        attached.sort(key=lambda one: b"spawn_main" in Path(f"/proc/{one['subProcessId']}/cmdline").read_bytes())
        other, child = (Debugger(one["connect"]["port"], **one) for one in attached)
        other.ask("configurationDone")
        child.break_at(program, LINE)
        assert child.evaluate("number") == "3"
        assert child.evaluate("sys.executable") == "'/user-software/venv/pytorch/bin/python'"
        child.ask("continue", threadId=child.thread)
        for one in (child, other, parent):
            one.socket.close()
        assert process.wait(timeout=300) == 0
    finally:
        wrapper.unlink()
        left = end(process)
    assert not left


def end(process):
    """End what a test has started; return what was left of it after its end, which takes some time (str)."""
    deadline = time.monotonic() + 300
    while True:
        left = attempt(["ps", "-o", "pid=,args=", "-s", str(process.pid)]).stdout
        if process.poll() is None or not left or time.monotonic() > deadline:
            break
        time.sleep(0.1)
    for line in left.splitlines():
        os.kill(int(line.split()[0]), signal.SIGKILL)
    process.wait(timeout=300)
    return left


class Browser:
    """A person's browser, behind Open OnDemand's proxy."""

    def __init__(self, connection):
        """Prepare for a server."""
        self.connection = connection
        self.base = f"http://{connection['host']}:{connection['port']}/node/{connection['host']}/{connection['port']}"
        self.cookies = http.cookiejar.CookieJar()
        self.opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(self.cookies))

    def open(self, path, **data):
        """Request a page, with a form if there are data; return its text."""
        form = urllib.parse.urlencode(data).encode() if data else None
        with self.opener.open(self.base + path, form, timeout=300) as answer:
            return answer.read().decode()

    def post(self, path):
        """Call the server's API; return the answer."""
        request = urllib.request.Request(self.base + path, b"", method="POST")
        with self.opener.open(request, timeout=300) as answer:
            return answer.read().decode()

    def run_cell(self, code):
        """Run a cell in a new kernel; return what it printed."""
        import websocket

        kernel = json.loads(self.post("/api/kernels"))["id"]
        connection = websocket.create_connection(
            f"{self.base.replace('http', 'ws')}/api/kernels/{kernel}/channels",
            timeout=300,
            cookie="; ".join(f"{one.name}={one.value}" for one in self.cookies),
        )
        header = {"msg_id": uuid.uuid4().hex, "msg_type": "execute_request", "version": "5.3", "session": "s"}
        content = {"code": code, "silent": False, "store_history": True, "user_expressions": {}, "allow_stdin": False}
        message = {"header": {**header, "username": "", "date": ""}, "parent_header": {}, "metadata": {}}
        connection.send(json.dumps({**message, "channel": "shell", "content": content}))
        printed = ""
        while True:
            message = json.loads(connection.recv())
            if message["parent_header"].get("msg_id") == header["msg_id"]:
                if message["msg_type"] == "stream":
                    printed += message["content"]["text"]
                elif message["msg_type"] == "execute_reply":
                    assert message["content"]["status"] == "ok", message["content"]
                elif message["msg_type"] == "status" and message["content"]["execution_state"] == "idle":
                    connection.close()
                    return printed


# pages replace elements while they are looked at, and cover them
PASSING = [ElementClickInterceptedException, ElementNotInteractableException, StaleElementReferenceException]


def plot_in_a_browser(browser, view, connection, picture):
    """Press the button in Open OnDemand's page, open the notebook and run its cell; save a picture of the result."""
    # Open OnDemand is on another host; here it is on none
    view.write_text(view.read_text().replace('action="/', f'action="http://localhost:{connection["port"]}/'))
    browser.get(view.as_uri())
    windows = set(browser.window_handles)
    browser.find_element("css selector", "button").click()
    wait = WebDriverWait(browser, 300, ignored_exceptions=PASSING)
    wait.until(lambda _: len(browser.window_handles) > len(windows))
    (new,) = set(browser.window_handles) - windows
    browser.switch_to.window(new)
    wait.until(lambda _: "/lab" in browser.current_url and browser.find_elements("css selector", "#jp-main-dock-panel"))
    browser.get(f"{browser.current_url.split('/lab')[0]}/lab/tree/plot.ipynb")

    def is_plotted(_):
        """Run the cell if it hasn't run: JupyterLab ignores that until the kernel is ready, or has a question first."""
        for answer in browser.find_elements("css selector", ".jp-Dialog .jp-mod-accept"):
            answer.click()
        cells = [one for one in browser.find_elements("css selector", ".jp-Notebook .cm-content") if one.is_displayed()]
        if cells and browser.find_element("css selector", ".jp-Notebook .jp-InputPrompt").text == "[ ]:":
            cells[0].click()
            ActionChains(browser).key_down(Keys.CONTROL).send_keys(Keys.ENTER).key_up(Keys.CONTROL).perform()
        return browser.find_elements("css selector", ".jp-OutputArea-output img")

    wait.until(is_plotted)
    browser.save_screenshot(str(picture))
    browser.close()
    browser.switch_to.window(windows.pop())


@pytest.mark.nightly
def test_a_session_of_open_ondemand(place, browser):
    """
    J-07: the scripts of the app start a server; a person logs in, runs a cell, and ends it. Nothing is left.

    EBSIF_TEST_PICTURES names a directory for the picture in the documentation.
    """
    assert place.documented(APP).strip().endswith("/jupyter-pytorch")
    app = place.site.home / "ondemand/dev/jupyter-pytorch"
    # there is no module LUMI here
    place.ebsif("ood", place.module, "--site", "local", "-o", app)
    folder, session = app / "template", place.site.home / "session"
    session.mkdir()
    notebooks = place.site.home / "my notebooks"
    notebooks.mkdir()
    for path in folder.iterdir():
        target = session / path.name.removesuffix(".erb")
        target.write_text(
            render(path, directory=str(notebooks), user_software="") if path.suffix == ".erb" else path.read_text()
        )
        target.chmod(path.stat().st_mode)
    log = session / "output.log"
    with log.open("w") as output:
        process = subprocess.Popen(
            ["bash", "-c", JOB, "job", session],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            umask=0o002,
            env={**place.environment, "python": sys.executable},
        )
    try:
        deadline = time.monotonic() + 300
        while not (session / "connection.yml").exists() or not (session / "connection.yml").read_text():
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)
        connection = yaml.safe_load((session / "connection.yml").read_text())
        stranger, person = Browser(connection), Browser(connection)
        for wrong in (lambda: stranger.open("/login", password="guess"), lambda: stranger.post("/api/kernels")):
            with pytest.raises(urllib.error.HTTPError) as error:
                wrong()
            assert error.value.code in (401, 403)
        # what the button does
        view = render(app / "view.html.erb", **connection)
        action, password = re.search(r'action="([^"]*)"', view)[1], re.search(r'value="([^"]*)"', view)[1]
        page = person.open(action.removeprefix(person.base[person.base.index("/node/") :]), password=password)
        assert "jupyter-config-data" in page
        printed = person.run_cell("import os, sys; print(sys.prefix, os.getcwd())")
        assert printed == f"/user-software/venv/pytorch {notebooks}\n"
        (notebooks / "plot.ipynb").write_text(json.dumps(NOTEBOOK))
        (session / "view.html").write_text(view)
        picture = Path(os.environ.get("EBSIF_TEST_PICTURES", session), "jupyterlab.png")
        plot_in_a_browser(browser, session / "view.html", connection, picture)
        assert picture.stat().st_size > 10000
        person.post("/api/shutdown")
        assert process.wait(timeout=300) == 0
    finally:
        left = end(process)
    assert not left
    assert (session / "config.py").stat().st_mode & 0o777 == 0o600
    assert connection["password"] not in (session / "config.py").read_text() + log.read_text()
