"""Images that eb fetches: real registries, a password, cut connections, killed or simultaneous attempts, full disks."""

import base64
import json
import multiprocessing
import os
import re
import shutil
import subprocess
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import ocilayouts
import pytest
from account import OWN_MOUNTS
from easybuild.easyblocks.generic.container.image import fetch as imagefetch
from easybuild.easyblocks.generic.container.image.source import ImageSource
from easybuild.tools.build_log import EasyBuildError
from ebsif.images.registry.manifest import INDEX, MANIFEST
from httpfiles import digest_of, serve_files
from registry import ACCOUNT, PASSWORD, CuttingProxy
from support import blocks


def fetch(source, target, **options):
    """Fetch an image in a process that isn't a former root, so that what it starts may follow its open directories."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as process:
        return process.submit(imagefetch.fetch, source, target, **options).result()


TEXT = "easyblock = 'ContainerInstall'\nsources = ['x.sif']\ninit = 'none'\n"


@pytest.fixture(scope="module")
def busybox(small_image):
    """The image with only busybox."""
    return small_image("busybox")


def easyconfig(site, source, more=""):
    """Write an easyconfig with a source of the image; return its path."""
    return site.easyconfig(f"{TEXT}image_source = '{source}'\n{more}")


def record(site):
    """Return what the installation has recorded on its image."""
    return site.record()["image"]


def fetched(site):
    """Return the names of what is in the source path."""
    return sorted(path.name for path in (site.sources / "e/Example").iterdir())


def test_a_registry_with_a_password(site, busybox, private_registry):
    """R-01, R-09: what apptainer has pushed is fetched with apptainer's login; no file of ours has it."""
    content = busybox.read_bytes()
    with CuttingProxy(private_registry, after=400_000, times=0) as proxy:
        name = f"oras://{proxy.host}/ai/x"
        for host in (private_registry.host, proxy.host):
            site.run(
                ["apptainer", "registry", "login", "--username", ACCOUNT, "--password", PASSWORD, f"docker://{host}"]
            )
        site.run(["apptainer", "push", busybox, f"oras://{private_registry.host}/ai/x:1"])
        source = re.search(rf"{name}:1@sha256:\w+", site.run(["ebsif", "show", f"{name}:1"]).stdout)[0]
        # a tag alone may stand for another image later
        said = " ".join(site.eb(easyconfig(site, f"{name}:1"), check=False, one_stream=True).stdout.split())
        assert f"'{name}:1' has no digest, and the tag can change. `ebsif show {name}:1` shows" in said
        path = easyconfig(site, source, f"checksums = ['{digest_of(content)[7:]}']\n")
        assert f"* x.sif will be fetched from {source}, if it is missing\n" in site.eb(path, "-x").stdout
        hidden = {"APPTAINER_CONFIGDIR": site.prefix / "no-login", "DOCKER_CONFIG": site.prefix / "no-login"}
        said = " ".join(site.eb(path, "--fetch", check=False, one_stream=True, **hidden).stdout.split())
        assert f"Log in with `apptainer registry login --username NAME docker://{proxy.host}`" in said
        # nothing that was cut is kept; the next attempt starts again
        proxy.left, proxy.ranges = 1, []
        said = site.eb(path, "--fetch", check=False, one_stream=True).stdout
        assert "unexpected EOF" in said
        assert fetched(site) == []
        said = site.eb(path, "--debug", one_stream=True).stdout
        assert set(proxy.ranges) == {""}
    found = record(site)
    assert (found["source"], found["source_digest"]) == (source, source.partition("@")[2])
    assert "sha256:" + found["sha256"] == digest_of(content)
    assert fetched(site) == ["x.sif", "x.sif.source.json"]
    bill = site.run(["ebsif", "lock", site.root(), "--format", "sbom"]).stdout
    assert found["source_digest"] in bill
    secrets = [PASSWORD.encode(), base64.b64encode(f"{ACCOUNT}:{PASSWORD}".encode())]
    assert list(site.prefix.rglob("easybuild-*.log"))
    with_secret = [
        path
        for path in site.prefix.rglob("*")
        if path.is_file() and not path.is_symlink() and any(secret in path.read_bytes() for secret in secrets)
    ]
    # that of apptainer's login
    assert [path.relative_to(site.home).name for path in with_secret] == ["config.json"]
    # the easyconfig of the documentation, with another name of the image
    (text,) = blocks("docs/registries.md", "python")
    path = site.prefix / "Tools-1.0.eb"
    path.write_text(re.sub("'oras://.*'", repr(found["source"].replace(proxy.host, private_registry.host)), text))
    site.eb("--fetch", path)
    assert (site.sources / "t/Tools/tools-1.0.sif").read_bytes() == content
    assert not any(secret.decode() in said for secret in secrets)


def test_layers_of_a_registry(site, root_of_busybox, registry, tmp_path):
    """R-01, R-03: an image of layers is converted, with both digests in the record; altered layers are refused."""
    digest = ocilayouts.add_image(tmp_path / "layout", root_of_busybox, "1")
    layer = json.loads((tmp_path / "layout/blobs/sha256" / digest[7:]).read_text())["layers"][0]["digest"]
    name = f"docker://{registry.host}/ai/layers"
    subprocess.run(
        ["skopeo", "copy", "--insecure-policy", "--dest-tls-verify=false", f"oci:{tmp_path}/layout:1", f"{name}:1"],
        check=True,
        capture_output=True,
    )
    path = easyconfig(site, f"{name}@{digest}")
    blob = registry.blob(layer)
    content = blob.read_bytes()
    blob.write_bytes(content[:-1] + b"?")
    try:
        said = site.eb(path, "--fetch", check=False, one_stream=True).stdout
        assert f'want "{layer}"' in said
        assert fetched(site) == []
    finally:
        blob.write_bytes(content)
    site.eb(path)
    assert fetched(site) == ["x.sif", "x.sif.source.json"]
    found = record(site)
    assert (found["source"], found["source_digest"]) == (f"{name}@{digest}", digest)
    assert "sha256:" + found["sha256"] == digest_of((site.sources / "e/Example/x.sif").read_bytes())
    assert site.bash("module load Example/1.0; singularity exec $SIF /bin/busybox echo it works").stdout == "it works\n"
    # the file of this digest isn't that of another one
    other = site.eb(easyconfig(site, f"{name}@sha256:{'0' * 64}"), "--rebuild", check=False, one_stream=True).stdout
    assert "was made from docker://" in " ".join(other.split())
    with (site.sources / "e/Example/x.sif").open("ab") as image:
        image.write(b"altered")
    said = site.eb(easyconfig(site, f"{name}@{digest}"), "--rebuild", check=False, one_stream=True).stdout
    assert f"is not what was fetched from {name}@{digest}" in " ".join(said.split())
    assert record(site) == found


def test_images_of_layers_on_disk(site, root_of_busybox, tmp_path):
    """R-01, R-08: an OCI layout needs no network."""
    digest = ocilayouts.add_image(tmp_path / "layout", root_of_busybox, "1")
    source = f"oci:{tmp_path}/layout:1@{digest}"
    # a module that uses a central image looks for it in the site's directory
    site.eb(easyconfig(site, source, f"image = 'central'\nimage_dirs = ['{tmp_path}/images']\n"))
    images = tmp_path / "images"
    assert sorted(path.name for path in images.iterdir()) == ["x.sif", "x.sif.source.json"]
    note = json.loads((images / "x.sif.source.json").read_text())
    assert note["source"] == source
    site.run(["apptainer", "--silent", "exec", images / "x.sif", "/bin/busybox", "true"])


def test_images_for_several_machines(root_of_busybox, tmp_path, configuration):
    """R-01, R-03: of an index, the image for this machine is used, if it is there and not altered."""
    folder, target = tmp_path / "layout", tmp_path / "x.sif"
    digest = ocilayouts.add_image(folder, root_of_busybox)
    machines = {"amd64": digest, "arm64": f"sha256:{'0' * 64}"}
    entries = [
        {"mediaType": MANIFEST, "digest": one, "size": 1, "platform": {"os": "linux", "architecture": name}}
        for name, one in machines.items()
    ]
    manifest = folder / "blobs/sha256" / digest[7:]
    entries[0]["size"] = manifest.stat().st_size
    text = json.dumps({"schemaVersion": 2, "mediaType": INDEX, "manifests": entries}).encode()
    index = {"mediaType": INDEX, **ocilayouts.add_blob(folder, text)}
    (folder / "index.json").write_text(json.dumps({"manifests": [index]}))
    assert fetch(ImageSource.parse(f"oci:{folder}"), str(target), again=True).digest == digest_of(text)
    subprocess.run(["apptainer", "--silent", "exec", target, "/bin/busybox", "true"], check=True)
    manifest.write_bytes(manifest.read_bytes() + b" ")
    with pytest.raises(EasyBuildError, match=f"The blob {digest} was altered"):
        fetch(ImageSource.parse(f"oci:{folder}"), str(target), again=True)


@contextmanager
def fetching(site):
    """A function that starts `eb --fetch` and returns process and file with its output; in the end, none is left."""
    started = []

    def start(path):
        command = ["eb", *site.eb_options, "--fetch", path]
        log = site.prefix / f"eb-{len(started)}.log"
        with log.open("w") as output:
            started.append(
                subprocess.Popen(
                    [str(word) for word in command],
                    env={**site.environment, "PYTHONUNBUFFERED": "1"},
                    cwd=site.work,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                )
            )
        return started[-1], log

    try:
        yield start
    finally:
        for process in started:
            process.kill()
            process.wait()


def test_several_at_once(site, busybox):
    """R-10: each eb fetches under a name of its own, also beside what a killed one has left; all end right."""
    with serve_files() as files, fetching(site) as start:
        content = busybox.read_bytes()
        files.content["/x.sif"] = content
        files.cuts, files.held = [500_000], threading.Event()
        path = easyconfig(site, f"{files.url}/x.sif#sha256={digest_of(content)[7:]}")
        killed, log = start(path)
        until = time.monotonic() + 300
        while not list(site.sources.glob("e/Example/.x.sif.*/x.sif")):
            assert time.monotonic() < until and killed.poll() is None, log.read_text()
            time.sleep(0.05)
        killed.kill()
        killed.wait()
        others = [start(path) for _ in range(2)]
        assert [other.wait(300) for other, _ in others] == [0, 0], [log.read_text() for _, log in others]
        files.held.set()
    hidden, *others = fetched(site)
    assert hidden.startswith(".x.sif.")
    assert others == ["x.sif", "x.sif.source.json"]
    assert (site.sources / "e/Example/x.sif").read_bytes() == content


def test_full_disks(site, root_of_busybox, tmp_path, fault):
    """R-03: a disk that is too small for the image says so, and nothing of it is left."""
    noise = tmp_path / "root"
    shutil.copytree(root_of_busybox, noise, symlinks=True)
    (noise / "noise").write_bytes(os.urandom(3_000_000))
    with serve_files() as files:
        digest = ocilayouts.add_image(tmp_path / "layout", noise)
        files.content["/x.sif"] = bytes(5_000_000)
        sources = {
            "the file": f"{files.url}/x.sif#sha256={digest_of(bytes(5_000_000))[7:]}",
            "the conversion": f"oci:{tmp_path}/layout@{digest}",
        }
        for place, source in sources.items():
            case = fault("disk full", f"while fetching an image: {place}")
            path = easyconfig(site, source)
            eb = " ".join(f"'{word}'" for word in ["eb", *site.eb_options, "--fetch", path])
            script = f"mount -t tmpfs -o size=4m none '{site.sources}'\n{eb}\nfind '{site.sources}' -type f -size +7k"
            result = site.run([*OWN_MOUNTS, "bash", "-c", script], check=False)
            said = " ".join((result.stdout + result.stderr).split())
            case.shown("the disk is full" in said or "no space left" in said, said)
            left = [path for path in map(Path, result.stdout.splitlines()) if path.is_relative_to(site.sources)]
            case.kept(left == [], left)
