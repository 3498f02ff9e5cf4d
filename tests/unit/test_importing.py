"""`ebsif import` of easyconfigs in the style in use today, of every generation, written from the facts."""

import json
import re

import pytest
import yaml
from ebsif.catalog import reading, site, stages
from ebsif.migrate import catalogfile, easyconfigfile, recipe, shellcommands
from ebsif.render import easyconfig, rendering
from ebsif_command import run_ebsif
from support import CHECKOUT

FACTS = json.loads((CHECKOUT / "tests/data/lumi-containers.json").read_text())
# What only the texts of the easyconfigs say, which are not read.
TEXTS = json.loads((CHECKOUT / "tests/data/lumi-texts.json").read_text())
LUMI = site.SITES / "lumi"

# Commands and scripts, as short as this style allows.
START_SHELL = """#!/bin/bash -e
if [[ -f "/.singularity.d/Singularity" ]]
then
    exec bash "$@"
else
    singularity exec $SIFNAME bash "$@"
fi
"""
WRAPPER = """#!/bin/bash
# started under the name of its link
if [ -z $SIFNAME ] || [ ! -f $SIFNAME ]
then
    >&2 echo "SIFNAME is not set"
    exit 1
fi
EXEC_BIN=$(basename "$0")         # python, pip ...
singularity exec $SIFNAME $EXEC_BIN "$@"
"""
DISTRIBUTED = """#!/bin/bash -e
if [ $SLURM_LOCALID -eq 0 ] ; then
    rocm-smi
fi
sleep 2
export MIOPEN_USER_DB_PATH="/tmp/$(whoami)-miopen-$SLURM_NODEID"
export NCCL_SOCKET_IFNAME=hsn0,hsn1,hsn2,hsn3
export NCCL_NET_GDR_LEVEL=3    # for RCCL
export ROCR_VISIBLE_DEVICES=$SLURM_LOCALID
export MASTER_ADDR=$(/runscripts/get-master "$SLURM_NODELIST")
export WORLD_SIZE=$SLURM_NPROCS
export RANK=$SLURM_PROCID
python "$@"
"""
SIMPLE = '#!/bin/bash -e\n# what it is for\npython "$@"\n'
BY_HAND = '#!/bin/bash -e\n$WITH_CONDA\npython "$@"\n'
SCRIPTS = {
    "bin/start-shell": START_SHELL,
    "bin/python": WRAPPER,
    "bin/list-packages": "pip3 list\n",
    "runscripts/list-packages": "singularity exec $SIFNAME pip3 list\n",
    "bin/make-squashfs": 'cd "%(installdir)s"\nmksquashfs user-software user-software.squashfs -no-progress\n',
    "bin/unmake-squashfs": 'cd "%(installdir)s"\nunsquashfs -d ./user-software user-software.squashfs\n',
    "runscripts/conda-python-distributed": DISTRIBUTED,
    "runscripts/get-master": "import argparse\n",
    "runscripts/init-conda-venv": "source /user-software/venv/x/bin/activate\n",
    "bin/ccpe-shell": 'singularity shell "$SIFCCPE" "$@"\n',
    "bin/ccpe-exec": 'singularity exec "$SIFCCPE" "$@"\n',
    "bin/ccpe-run": 'singularity run "$SIFCCPE" "$@"\n',
    "bin/ccpe-singularity": 'singularity "$@"\n',
}


@pytest.fixture(scope="module")
def lumi():
    """LUMI's profile."""
    return site.read("lumi")


def in_todays_style(fact):
    """Return the text of an easyconfig with the fact's content, written as shell commands."""
    suffix = fact["easyconfig"][len(f"{fact['name']}-{fact['version']}") : -len(".eb")]
    venv = fact["user_software_venv"]
    lines = []
    for name, version in fact["components"].items():
        if name not in ("dockerhash", "date", "python_mm", "rocm_major_minor"):
            lines.append(f"local_c_{name}_version = {version!r}")
    definitions = "".join(f", {name!r}" for name in fact["sif"][1:])
    copied = "".join(f", ([{name!r}], 'share/docker-defs/')" for name in fact["sif"][1:])
    simple = SIMPLE if venv else BY_HAND
    scripts = {**SCRIPTS, "runscripts/conda-python-simple": simple, "runscripts/python-conda-simple": simple}
    lines += [
        "easyblock = 'MakeCp'",
        f"name = {fact['name']!r}",
        f"version = {fact['version']!r}",
        f"versionsuffix = {suffix!r}",
        "homepage = 'https://example.org'",
        "description = 'A container.'",
        "whatis = ['Description: a container']",
        "toolchain = SYSTEM",
        f"local_sif = {fact['sif'][0]!r}",
        f"sources = [{{'filename': local_sif, 'extract_cmd': '/bin/cp -L %s .'}}{definitions}]",
        "skipsteps = ['build']",
        f"files_to_copy = [([local_sif], '.'){copied}]",
    ]
    commands = ["mkdir -p %(installdir)s/bin %(installdir)s/runscripts"]
    for script in fact["scripts"]:
        # a shell reads the text, so each $ is escaped
        text = scripts[script].replace("$", "\\$")
        commands += [f"cat >%(installdir)s/{script} <<EOF \n{text}EOF", f"chmod a+x %(installdir)s/{script}"]
    commands += [f"ln -s ./python %(installdir)s/{link}" for link in fact["wrapper_links"]]
    if venv:
        commands += [
            "mkdir -p %(installdir)s/user-software/venv",
            "singularity exec --bind %(installdir)s/user-software:/user-software %(installdir)s/x.sif bash -c "
            f"'$WITH_CONDA ; cd /user-software/venv ; python -m venv {fact['name'].lower()}'",
        ]
    if fact["requirements"]:
        block = "\n".join(fact["requirements"])
        files = "%(installdir)s/user-software"
        commands += [
            f"cat >{files}/venv/requirements.txt <<EOF \n{block}\n\nEOF",
            f"singularity exec --bind {','.join(fact['binds'])} "
            f"--bind {files}:/user-software %(installdir)s/x.sif bash -c "
            "'source /runscripts/init-conda-venv ; cd /user-software/venv ; pip install -r requirements.txt'",
            "%(installdir)s/bin/make-squashfs",
            "/bin/rm -rf %(installdir)s/user-software",
        ]
    lines += ["postinstallcmds = [", *(f"    {command!r}," for command in commands), "]"]
    variables, binds = dict(fact["module_vars"]), ",".join(fact["binds"] or [])
    if not venv:
        variables["SINGULARITY_BIND"] = binds
    call = [fact["sif"][0], fact["name"], "%(installdir)s", *([binds] if venv else [])]
    footer = f"\n-- a routine of LUMI\ncreate_container_vars( {', '.join(map(repr, call))} )\n"
    lines += [f"modextravars = {variables!r}", f"modluafooter = '''{footer}'''"]
    lines += ["sanity_check_paths = {'files': [], 'dirs': ['runscripts']}"]
    return "\n".join([*lines, f"moduleclass = {fact.get('moduleclass', 'devel')!r}", ""])


def written(folder, name, text):
    """Write an easyconfig; return its path."""
    path = folder / name
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_text(text)
    return path


def imported(paths, folder, profile):
    """Import easyconfigs of one name into a folder; return the results and the containers in the file."""
    results = [recipe.read(path, profile) for path in paths]
    name = results[0].name
    made = catalogfile.File(name, results, profile)
    (folder / "containers").mkdir(parents=True, exist_ok=True)
    (folder / "containers" / f"{name}.yaml").write_text(made.text)
    return results, reading.read(profile, folder)


@pytest.mark.parametrize("name", sorted({fact["name"] for fact in FACTS}))
def test_imported_containers_equal_the_catalogs(name, lumi, tmp_path):
    """Every container of LUMI, of all generations, gives the same module."""
    ours = {one.easyconfig_name: one for one in reading.read(lumi, LUMI)}
    facts = [fact for fact in FACTS if fact["name"] == name]
    places = {True: tmp_path / "__archive__", False: tmp_path / "now"}
    paths = [written(places[fact["archived"]], fact["easyconfig"], in_todays_style(fact)) for fact in facts]
    results, made = imported(paths, tmp_path, lumi)
    # the facts lack ccpe's binds and variables
    left = [text for result in results for _, text in result.left]
    assert [text for text in left if not text.startswith("binds of the site")] == []
    assert bool(left) == (name == "ccpe")
    for fact, one in zip(facts, made):
        compare(one, ours[fact["easyconfig"]])
    assert "hash: none" not in (tmp_path / f"containers/{name}.yaml").read_text()


def compare(made, ours):
    """Compare an imported container with the catalog's."""
    assert made.file_name == ours.file_name
    for field in ("venv", "requirements", "definition_files", "script_names"):
        assert (getattr(made, field) or None) == (getattr(ours, field) or None), field
    # not in the facts: ccpe's binds, contents of LUMI's own image, and settings in modluafooter
    if made.name == "ccpe":
        assert made.container_env == {"PS1": ours.container_env["PS1"]}
    else:
        assert made.container_env == ours.container_env
        assert made.all_binds == ours.all_binds
    # the easyconfig doesn't say why
    assert bool(made.archived) == bool(ours.archived)
    # without families, only the image has this information
    assert (made.init or "image") == (ours.init or "image")
    assert (made.conda_env or made.name.lower()) == (ours.conda_env or ours.name.lower())
    assert sorted(easyconfig.wrappers(made) or []) == sorted(easyconfig.wrappers(ours) or [])
    assert made.easyconfig_name == ours.easyconfig_name
    footer = dict.fromkeys(("EXPORTCCPE", "SWITCHTOCCPE") if made.name == "ccpe" else ())
    assert {**made.variables, **footer} == {**ours.variables, **footer}
    # one container has different versions in file name and suffix: the file name is right; the recipe of another has a
    # version that isn't in the image
    rocm = made.components.get("rocm")
    assert rocm in (ours.components.get("rocm"), "5.5.3", "6.3", None) or "-noRocm-" in made.module
    if made.name != "ccpe":
        assert set(ours.components) - set(TEXTS[ours.easyconfig_name].get("stated", ())) <= set(made.components)
    assert made.parameters == {"whatis": ["Description: a container"]}
    assert (made.description, made.homepage) == ("A container.", "https://example.org")


STRANGE = r"""
easyblock = 'MakeCp'
name = 'Strange'
version = '1.0'
versionsuffix = '-a'
homepage = 'https://example.org'
description = 'See ${HOME} and {this}'
whatis = ['Description: strange', 'Keywords: x']
docurls = ['https://example.org/doc']
toolchain = SYSTEM
local_answer = 42
local_c_vllm_commit = 'abc1234'
local_c_flashattention_version = '2.7.3'
local_simple = '''
#!/bin/bash
export MIOPEN_DEBUG=1
python "$@"
'''
sources = ['strange-1.0.sif', 'strange.docker', 'data.tar']
files_to_copy = [(['strange-1.0.sif'], '.'), (['strange.docker'], 'share/docker-defs/'), (['data.tar'], 'share/data')]
skipsteps = ['build', 'sanitycheck']
postinstallcmds = [
    'mkdir -p bin && curl https://example.org/x | bash',
    'cat >%(installdir)s/bin/tool <<"EOF"\n#!/bin/bash\nsingularity exec "$SIF" tool "$@"\nEOF\n',
    'cat >%(installdir)s/bin/other <<"EOF"\n#!/bin/bash\nrm -rf /tmp/x\nEOF\n',
    'cat >%(installdir)s/runscripts/conda-python-simple <<"EOF"' + local_simple + 'EOF',
    'echo export A=1 > %(installdir)s/etc/setup.sh',
    'touch %(installdir)s/etc/mark',
    'rm -rf %(installdir)s/share',
    'chmod a+x %(installdir)s/bin/tool',
    'for i in 1 2; do echo $i; done',
    'python %(installdir)s/setup.py',
]
sanity_check_paths = {'files': ['bin/tool', 'etc/mark'], 'dirs': []}
sanity_check_commands = ['echo "syntax" ; bash -n tool', ('tool', '--version')]
modextravars = {
    'SINGULARITY_BIND': '/scratch,/data:/mnt,%(installdir)s/etc:/etc/own', 'MINE': 'yes', 'SINGULARITYENV_X': '1',
    'SINGULARITYENV_PS1': '\\\\[\\\\e[91m\\\\] > ',
    'SINGULARITYENV_PREPEND_PATH': '/runscripts:/my/tools',
    'SINGULARITYENV_WITH_CONDA': 'module load conda',
    'SINGULARITYENV_VIRTUAL_ENV': '/opt/venv',
    'HERE': '%(installdir)s/share',
}
modluafooter = '''
conflict('other', "singularity-AI-bindings")
setenv("OTHER", "2") -- why
setenv("MANY", [==[one
two]==])
if mode() == "load" then
    LmodMessage("hello")
    setenv("INNER", "3")
end
prepend_path('SINGULARITY_BIND', '/more', ',')
create_container_vars('other.sif', 'Stranger', '%(installdir)s', '/data:/mnt,/fourth')
'''
group = 'users'
exts_list = ['numpy']
builddependencies = [('PRoot', '5.4.0')]
moduleclass = 'tools'
"""


def test_nothing_is_dropped_silently(lumi, tmp_path):
    """Whatever has a field becomes data, everything else is reported with its line."""
    path = written(tmp_path, "Strange-1.0-a.eb", STRANGE)
    (found,), (made,) = imported([path], tmp_path, lumi)
    lines = STRANGE.splitlines()
    told = [(lines[line - 1].strip(), text) for line, text in sorted(found.left, key=lambda one: one[0]) if line > 1]
    footer = " (parameters: modluafooter can)"
    assert told == [
        ("description = 'See ${HOME} and {this}'", "parameter description: {HOME} would be a placeholder in a record"),
        ("local_answer = 42", "variable local_answer = 42, which nothing uses"),
        (lines[18], "sources: data.tar, which is neither an image nor a definition file"),
        (lines[19], "files_to_copy: [['data.tar'], 'share/data']"),
        ("skipsteps = ['build', 'sanitycheck']", "parameter skipsteps: sanitycheck"),
        (lines[22].strip(), "postinstallcmds: mkdir -p bin && curl https://example.org/x | bash (it has |)"),
        (lines[24].strip(), "the file bin/other, which none of our scripts replaces"),
        (lines[26].strip(), "postinstallcmds: echo export A=1 > %(installdir)s/etc/setup.sh (it has >)"),
        ("'touch %(installdir)s/etc/mark',", "postinstallcmds: touch %(installdir)s/etc/mark"),
        ("'rm -rf %(installdir)s/share',", "postinstallcmds: rm -rf %(installdir)s/share"),
        (lines[30].strip(), "postinstallcmds: for i in 1 2; do echo $i; done (a compound command, for)"),
        (lines[31].strip(), "postinstallcmds: python %(installdir)s/setup.py"),
        ("sanity_check_paths = {'files': ['bin/tool', 'etc/mark'], 'dirs': []}", "sanity_check_paths: etc/mark"),
        (lines[34].strip(), "sanity_check_commands: ['tool', '--version']"),
        (lines[36].strip(), "bind %(installdir)s/etc:/etc/own: a record can't name the installation"),
        (lines[38].strip(), "directory /my/tools in PREPEND_PATH, for PATH in the container"),
        (lines[41].strip(), "variable HERE=%(installdir)s/share: a record can't name the installation" + footer),
        (lines[53], "create_container_vars: another image or directory, other.sif, %(installdir)s"),
        (lines[53], "create_container_vars: the name Stranger, so that SIFSTRANGER is set"),
        ("exts_list = ['numpy']", "parameter exts_list = ['numpy']"),
        ("builddependencies = [('PRoot', '5.4.0')]", "parameter builddependencies = [['PRoot', '5.4.0']]"),
    ]
    scripts = ["bin/tool", "runscripts/conda-python-simple"]
    assert [name for _, name in found.replaced] == scripts
    assert all(lines[line - 1].startswith(f"    'cat >%(installdir)s/{name} <<") for line, name in found.replaced)
    assert made.binds.optional == ["/data:/mnt", "/fourth"]
    assert made.variables == {"MINE": "yes"}
    mine = {"X": "1", "PS1": r"\[\e[91m\] > ", "WITH_CONDA": "module load conda", "VIRTUAL_ENV": "/opt/venv"}
    assert made.container_env == mine
    assert made.wrappers == ["tool"]
    assert made.definition_files == ["strange.docker"]
    assert made.components == {"flash-attn": "2.7.3", "vllm-commit": "abc1234"}
    assert made.parameters == {
        "whatis": ["Description: strange", "Keywords: x"],
        "docurls": ["https://example.org/doc"],
        "group": "users",
        "modluafooter": STRANGE.partition("modluafooter = '''\n")[2].partition("create_container")[0],
    }
    text = easyconfig.render(made)
    assert "whatis = ['Description: strange', 'Keywords: x']\n" in text
    assert 'setenv("MANY", [==[one\ntwo]==])\n' in text
    assert (made.easyconfig_name, made.file_name) == (path.name, "strange-1.0.sif")


PIP = """
easyblock = 'MakeCp'
name = 'Tool'
version = '1.0'
homepage = 'https://example.org'
description = 'x'
toolchain = SYSTEM
sources = ['tool-1.0.sif']
local_exec = 'singularity exec --bind %(installdir)s/user-software:/user-software %(installdir)s/tool-1.0.sif '
postinstallcmds = [
    local_exec + "bash -c 'cd /user-software/venv ; python3 -m venv --system-site-packages tool'",
    COMMANDS
]
"""


def with_commands(commands="'true'"):
    """Return the text of an easyconfig with more commands, which begin in its line 12."""
    return PIP.replace("COMMANDS", commands)


def import_one(folder, text, profile):
    """Import an easyconfig of Tool; return the result and the container."""
    (result,), (made,) = imported([written(folder, "Tool-1.0.eb", text)], folder, profile)
    return result, made


def left_in(found):
    """Return the lines of an easyconfig that nothing was made of, besides the first one."""
    return [line for line, _ in found.left if line > 1]


@pytest.mark.parametrize(
    "command",
    [
        # relative paths, other modes and targets, pipes and redirections
        *("mkdir -p bin", "cd /scratch ; mkdir -p user-software/venv", "cd /scratch; rm -rf user-software"),
        *("chmod 600 %(installdir)s/bin/start-shell", "mksquashfs user-software us2.squashfs"),
        *("true && touch %(installdir)s/x", "pip list | grep torch", "rm -rf %(installdir)s/user-software &"),
    ],
)
def test_commands_are_understood_as_a_whole_or_listed_as_a_whole(lumi, tmp_path, command):
    """Nothing of a command is taken over that does more than a record can say."""
    found = recipe.read(written(tmp_path, "Tool-1.0.eb", with_commands(f"'true', {command!r}")), lumi)
    assert left_in(found) == [12]
    assert any(text.startswith(f"postinstallcmds: {command}") for _, text in found.left)


def test_comments_are_listed(lumi, tmp_path):
    """Comments are listed with their lines; who wrote the recipe stands at its record, too."""
    text = with_commands("'true',  # why") + "modluafooter = '-- a reason'\n"
    text = text.replace("\neasyblock", "# By A. Person of B\n#####\n\neasyblock", 1)
    result, _ = import_one(tmp_path, text, lumi)
    assert result.comments == [(1, "By A. Person of B"), (14, "why"), (16, "a reason")]
    assert "  # Tool-1.0.eb\n  # By A. Person of B\n" in (tmp_path / "containers/Tool.yaml").read_text()


@pytest.mark.parametrize(
    ("commands", "expected"),
    [
        (["bash -c 'source /runscripts/init-conda-venv ; pip install a==1 \"rich>=13\"'"], ["a==1", "rich>=13"]),
        (["python3 -m pip install rich==14.0.0"], ["rich==14.0.0"]),
        (
            ["pip install flash-attn==2.7.3", "bash -c '. /user-software/venv/tool/bin/activate && pip3 install rich'"],
            [{"requirements": ["flash-attn==2.7.3"]}, {"requirements": ["rich"]}],
        ),
    ],
)
def test_calls_of_pip_in_the_container(commands, expected, lumi, tmp_path):
    """pip in `singularity exec --bind ... bash -c '...'` becomes requirements or stages."""
    block = ", ".join(f"local_exec + {command!r}" for command in commands)
    found, made = import_one(tmp_path, with_commands(block), lumi)
    assert left_in(found) == []
    assert stages.as_parameter(made.requirements) == expected
    assert (made.venv, made.init) == (True, None)


def test_the_conda_environment_for_pip(lumi, tmp_path):
    """The environment's activation is kept even if only pip's command line names it."""
    command = "local_exec + \"bash -c 'source /opt/conda/bin/activate ai ; pip install rich'\""
    _, made = import_one(tmp_path, with_commands(command), lumi)
    assert (made.init, made.conda_root, made.conda_env) == ("conda-injected", "/opt/conda", "ai")


@pytest.mark.parametrize(
    "command",
    [
        *("pip install --target /user-software/lib rich", "pip install $PACKAGES", "pip install -r /some/file.txt"),
        *("bash -c 'cat list | xargs pip install'", "pip install rich >| list.txt", "pip install --no-deps rich"),
        *("--writable bash -c 'true'", "bash -c 'if true; then pip install rich; fi'"),
        *("bash -c 'cd /src && pip install .[all]'", "bash -c 'MAX_JOBS=4 pip install flash-attn'"),
        "bash -c 'export A=1 && pip install rich'",
        # the packages don't go into the last one in silence
        "python -m venv /user-software/venv/second",
    ],
)
def test_unsupported_uses_of_pip(command, lumi, tmp_path):
    """Commands that stages can't express are left to the user."""
    found, made = import_one(tmp_path, with_commands(f"local_exec + {command!r}"), lumi)
    assert left_in(found) == [12]
    assert (made.requirements, found.record["venv_name"]) == (None, "tool")


def test_no_credential_is_imported(lumi, tmp_path):
    """G-09: neither record nor report contains it; the report says where credentials belong."""
    command = "local_exec + 'pip install https://me:Passw0rd1@example.org/rich-1.0.zip'"
    text = with_commands(command) + "modextravars = {'MY_TOKEN': 'abcdef123456', 'B': '1'}\n"
    found, made = import_one(tmp_path, text, lumi)
    assert (made.requirements, made.variables) == (None, {"B": "1"})
    assert sorted(text.split(":")[0] for _, text in found.left if "credential" in text) == ["MY_TOKEN", "requirements"]
    file = (tmp_path / "containers/Tool.yaml").read_text()
    told = "\n".join([*found.messages, *found.data, *found.recognized, file])
    assert "Passw0rd1" not in told and "abcdef123456" not in told


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("while read x; do pip install $x; done", "a compound command, while"),
        ("cd /src && if true; then pip install rich; fi", "a compound command, if"),
        ("[[ -f x ]] && pip install rich", r"a compound command, \[\["),
        ("pip install rich ||\npip install --no-deps rich", r"it has \|\|"),
        ("pip install rich & wait", "it has &"),
        ("(cd /src; pip install rich)", r"it has \("),
        ("pip install $(cat list)", r"it has \("),
        ("cat < x", "it has <"),
        ("pip install `cat list`", "a command in a command"),
        ("echo 'x", "No closing quotation"),
    ],
)
def test_compound_commands_are_refused(text, reason):
    """Compound commands are never treated as the simple commands they contain."""
    with pytest.raises(ValueError, match=reason):
        shellcommands.simple_commands(text)


def test_messages_keep_paths_and_order(lumi, tmp_path):
    """Values are shortened, with an ellipsis, never in the middle of a credential (G-09); sorted by line."""
    value = "x" * 130 + " https://me:Passw0rd123456789@example.org/simple/packages"
    text = with_commands(f"'touch a', 'touch {value}'") + f"local_long = {value!r}\n"
    folder = tmp_path / ("d" * 200) / ("e" * 200)
    paths = [written(folder, name, text) for name in ("Tool-1.0.eb", "other.eb")]
    found, _ = imported(paths, tmp_path, lumi)
    file = (tmp_path / "containers/Tool.yaml").read_text()
    for one in found:
        part = file[file.index(f"# {one.path.name}\n") :].split("- family")[0]
        lines = [int(line) for line in re.findall(r"# review: line (\d+): ", part)]
        assert lines == sorted(lines) and len(lines) >= 3
        assert one.messages[-1].endswith("..., which nothing uses")
        assert "Passw0rd" not in file + "".join([*one.messages, *one.data, *one.recognized])


IN_LUA = "local binds = '/must,' .. \"/may:/may\" .. os.getenv('MORE')\n"


@pytest.mark.parametrize(
    ("lines", "missing", "more"),
    [
        ("modextravars = {'SINGULARITY_BIND': '/must,/may:/may,/maybe'}\n", None, None),
        ("modextravars = {'SINGULARITY_BIND': '/must,/other'}\n", "/may, /maybe", ["/other"]),
        # joined in Lua, which is kept as it is
        (f"modluafooter = '''\n{IN_LUA}setenv('SINGULARITY_BIND', binds)\n'''\n", "/maybe", None),
    ],
)
def test_binds_are_compared_with_the_sites(lines, missing, more, tmp_path):
    """What the site would add is listed, what the easyconfig adds is in the record."""
    binds = site.Binds(required=["/must"], optional=["/may", "/maybe"])
    profile = site.Site(name="mine", description="x", binds=binds)
    result = recipe.read(written(tmp_path, "Tool-1.0.eb", with_commands() + lines), profile)
    assert [message.rpartition(": ")[2] for _, message in result.left] == ([missing] if missing else [])
    assert result.record.get("binds") == more


def test_texts_about_one_version_stay_in_the_record(lumi, tmp_path):
    """A text with a version would be wrong for the next container of the family."""
    for text, in_family in (("A tool.", True), ("Tool 1.0, a tool.", False), ("For CUDA 12.4.", False)):
        more = "modloadmsg = 'Tool 1.0 is here.'\nwhatis = ['A tool']\n"
        _, made = import_one(tmp_path, with_commands().replace("= 'x'", f"= {text!r}") + more, lumi)
        content = yaml.safe_load((tmp_path / "containers/Tool.yaml").read_text())
        assert (content["families"]["tool"].get("description") == text) == in_family
        assert made.fill(made.description) == text
        assert made.parameters == {"modloadmsg": "Tool 1.0 is here.", "whatis": ["A tool"]}
        assert content["containers"][0]["parameters"]["modloadmsg"] == "Tool 1.0 is here."


def test_a_description_that_is_a_manual(lumi, tmp_path):
    """The report names a long text, which describes variables and scripts of the recipe."""
    for number, expected in ((10, []), (11, ["description, 11 lines: shorten it to what is true of our module"])):
        text = with_commands().replace("= 'x'", f"= {chr(10).join(['SIF is set'] * number)!r}")
        found, _ = import_one(tmp_path / str(number), text, lumi)
        assert [text for text in found.data if text.startswith("description")] == expected


def test_an_easyconfig_without_homepage(lumi, tmp_path):
    """`import` and the written file report it, before `render` does."""
    found, _ = import_one(tmp_path, with_commands().replace("'https://example.org'", "''"), lumi)
    assert "there is no homepage, and EasyBuild wants one" in [message for _, message in found.left]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("name = 'x'\n", "mandatory parameters not provided"),
        (STRANGE.replace("sources = ", "no_sources = "), "sources is missing: this is not the easyconfig of a"),
        (STRANGE.replace("strange-1.0.sif", "x.tar.gz"), "none of the sources is an image"),
        ("name = (\n", "Parsing easyconfig file failed"),
        (STRANGE.replace("version = '1.0'", "version = '1.0 beta'"), "the catalog can't have this name or version"),
        (STRANGE + "modextravars = ['A']\n", "modextravars is not what EasyBuild expects: "),
        (STRANGE + "skipsteps = True\n", "skipsteps is not what EasyBuild expects: "),
        (f"# J\xf6rg\n{STRANGE}", "x.eb: the file is not encoded in UTF-8: save it as UTF-8"),
        (STRANGE.replace("toolchain = SYSTEM", "toolchain = 0"), "x.eb: EasyBuild can't read it: 'int' object has no"),
        # only recipes of shell commands are imported; others work as they are
        (with_commands().replace("MakeCp", "ContainerVenv"), "uses ContainerVenv already: install it with eb"),
    ],
)
def test_other_easyconfigs(text, expected, lumi, tmp_path):
    """Easyconfigs of another kind cause an error, not a traceback."""
    path = tmp_path / "x.eb"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(easyconfigfile.ImportingError, match=expected):
        recipe.read(path, lumi)


def test_a_site_without_families(tmp_path):
    """One file has one family, with placeholders for parts of names; without Python nothing is activated."""
    facts = [fact for fact in FACTS if fact["name"] in ("PyTorch", "rocm")]
    local = site.read("local")
    paths = [written(tmp_path, fact["easyconfig"], in_todays_style(fact)) for fact in facts]
    for name in ("rocm", "PyTorch"):
        imported([path for path in paths if path.name.startswith(name)], tmp_path, local)
    made = reading.read(local, tmp_path)
    assert {one.easyconfig_name for one in made} == {path.name for path in paths}
    assert {one.file_name for one in made} == {fact["sif"][0] for fact in facts}
    text = (tmp_path / "containers/rocm.yaml").read_text()
    family = "  rocm:\n    file: lumi-rocm-rocm-{version}-dockerhash-{hash}.sif\n    suffix: -singularity-{date}\n"
    assert text.startswith(f"name: rocm\nfamilies:\n{family}")
    assert text.count("file:") == 1 and "\n    init: none\n" in text
    head = (tmp_path / "containers/PyTorch.yaml").read_text().split("containers:\n")[0]
    file = "lumi-pytorch-rocm-{rocm}-python-{python}-pytorch-v{version}-dockerhash-{hash}.sif"
    assert head.startswith(f"name: PyTorch\nfamilies:\n  pytorch:\n    file: {file}\n")
    assert {one.init or "image" for one in made} == {"none", "conda-manual", "conda-injected", "image"}


def test_two_easyconfigs_for_one_module(lumi, tmp_path):
    """Two easyconfigs of one module, one with another file name, are what `ebsif check` reports."""
    fact = next(fact for fact in FACTS if fact["name"] == "mpi4py")
    text = in_todays_style(fact)
    texts = {fact["easyconfig"]: text, "mpi4py-other.eb": text.replace("3.1.4-dockerhash-", "3.1.4-dockerhash-0")}
    found, made = imported([written(tmp_path, *one) for one in texts.items()], tmp_path, lumi)
    assert f"renamed {fact['easyconfig']}, after the module" in found[1].data
    assert len(rendering.render_all(made, tmp_path, made)[1]) == 2


def test_the_command(tmp_path):
    """A file that loads without changes; status 0 if everything was understood, 1 if not, 2 for bad input."""

    def run(*arguments, status):
        result = run_ebsif(["import", "--site", "lumi", *arguments], tmp_path)
        assert result.returncode == status, result.stderr
        return result

    names = {"rocm": [], "mpi4py": []}
    for fact in FACTS:
        if fact["name"] in names:
            names[fact["name"]].append(written(tmp_path, fact["easyconfig"], in_todays_style(fact)))
    result = run(*names["rocm"], status=0)
    written(tmp_path, "mine/lumi/containers/rocm.yaml", result.stdout)
    made = reading.read(site.read("lumi"), tmp_path / "mine/lumi")
    assert {one.easyconfig_name for one in made} == {path.name for path in names["rocm"]}
    assert "done by site or easyblock:" in result.stderr
    everything = [*names["rocm"], *names["mpi4py"]]
    said = run(*everything, status=3).stderr
    assert "several names, and the catalog has a file for each (mpi4py, rocm): choose a directory" in said
    assert run("-q", "-o", "out", *everything, status=0).stderr == ""
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["mpi4py.yaml", "rocm.yaml"]
    assert "out/rocm.yaml exists already, with different" in run("-o", "out", names["rocm"][0], status=3).stderr
    (tmp_path / "out/mpi4py.yaml").write_bytes(b"# J\xf6rg\n")
    assert "out/mpi4py.yaml exists already" in run("-o", "out", *everything, status=3).stderr
    assert "several names" in run("-o", "one.yaml", *everything, status=3).stderr
    run("-o", "one.yml", *names["rocm"], status=0)
    assert (tmp_path / "one.yml").read_text() == (tmp_path / "out/rocm.yaml").read_text()
    strange = written(tmp_path, "Strange-1.0-a.eb", STRANGE)
    result = run("-q", strange, status=1)
    assert f"ebsif: left to you: {strange}:11: variable local_answer = 42, which nothing uses" in result.stderr
    bad = written(tmp_path, "bad.eb", "name = 'x'\n")
    result = run("-q", bad, *names["mpi4py"], status=3)
    assert "bad.eb: mandatory parameters not provided" in result.stderr
    assert result.stdout.startswith("name: mpi4py\n")


def test_sequences_for_terminals(tmp_path):
    """P-06: values and comments of somebody else's easyconfig are escaped in what is printed and in the file."""
    (tmp_path / "x.eb").write_text(
        "# first \x1b[2J\neasyblock = 'MakeCp'\nname = 'PyTorch'\nversion = '2.0'\nhomepage = '\\x1b[2J'\n"
        "description = 'd'\ntoolchain = SYSTEM\nsources = ['a.sif']\nfiles_to_copy = ['\\x1b[2J']\n"
    )
    result = run_ebsif(["import", str(tmp_path / "x.eb"), "--site", "lumi"])
    assert "\\x1b[2J" in result.stdout and result.stderr
    assert "\x1b" not in result.stdout + result.stderr
