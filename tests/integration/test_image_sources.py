"""Images that eb fetches: real registries, a password, cut connections, killed or simultaneous attempts, full disks."""

import base64
import json
import os
import re
import shutil
import subprocess
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import ocilayouts
import pytest
from account import OWN_MOUNTS
from httpfiles import digest_of, serve_files
from registry import ACCOUNT, PASSWORD, CuttingProxy
from support import blocks

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
    return json.loads((site.prefix / "eb/software/Example/1.0/share/ebsif/lock.json").read_text())["image"]


def fetched(site):
    """Return the names of what is in the source path."""
    return sorted(path.name for path in (site.sources / "e/Example").iterdir())


def test_a_registry_with_a_password(site, busybox, private_registry):
    """R-01, R-09: what apptainer has pushed is fetched with apptainer's login, whatever is cut; no file has it."""
    content = busybox.read_bytes()
    with CuttingProxy(private_registry, after=400_000, times=2) as proxy:
        name = f"oras://{proxy.host}/ai/x"
        path = easyconfig(site, f"{name}:1", f"checksums = ['{digest_of(content)[7:]}']\n")
        assert f"* x.sif will be fetched from {name}:1\n" in site.eb(path, "-x").stdout
        said = " ".join(site.eb(path, "--fetch", check=False, one_stream=True).stdout.split())
        assert f"log in with `apptainer registry login --username NAME docker://{proxy.host}`" in said
        for host in (private_registry.host, proxy.host):
            site.run(["apptainer", "registry", "login", "--username", ACCOUNT, "--password", PASSWORD, f"docker://{host}"])
        site.run(["apptainer", "push", busybox, f"oras://{private_registry.host}/ai/x:1"])
        said = site.eb(path, "--debug", one_stream=True).stdout
        assert proxy.ranges == ["", "bytes=400000-", "bytes=800000-"]
    found = record(site)
    # the tag was resolved once, and the warning has what to write
    assert found["source"].startswith(f"{name}:1@sha256:")
    assert f"write: image_source = '{found['source']}'" in " ".join(said.split())
    assert found["source_digest"] == found["source"].partition("@")[2]
    assert "sha256:" + found["sha256"] == digest_of(content)
    assert fetched(site) == ["x.sif", "x.sif.source.json"]
    bill = (site.prefix / "eb/software/Example/1.0/share/ebsif/sbom.cdx.json").read_text()
    assert found["source_digest"] in bill
    secrets = [PASSWORD.encode(), base64.b64encode(f"{ACCOUNT}:{PASSWORD}".encode())]
    assert list(site.prefix.rglob("easybuild-*.log"))
    with_secret = [path for path in site.prefix.rglob("*") if path.is_file() and not path.is_symlink()
                   and any(secret in path.read_bytes() for secret in secrets)]
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
    subprocess.run(["skopeo", "copy", "--insecure-policy", "--dest-tls-verify=false", f"oci:{tmp_path}/layout:1",
                    f"{name}:1"], check=True, capture_output=True)
    path = easyconfig(site, f"{name}@{digest}")
    blob = registry.blob(layer)
    content = blob.read_bytes()
    blob.write_bytes(content[:-1] + b"?")
    try:
        said = site.eb(path, "--fetch", check=False, one_stream=True).stdout
        assert f"The blob {layer} was altered" in " ".join(said.split())
        assert "x.sif" not in fetched(site)
    finally:
        blob.write_bytes(content)
    command = [str(word) for word in ["eb", *site.eb_options, f"--prefix={tmp_path}/eb", "--fetch", path]]
    site.run(["bash", "-c", 'umask 077; exec "$@"', "bash", *command])
    assert fetched(site) == ["x.sif", "x.sif.source.json"]
    assert [(site.sources / "e/Example" / file).stat().st_mode & 0o777 for file in fetched(site)] == [0o644, 0o644]
    site.eb(path)
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


@pytest.mark.parametrize("kind", ["oci", "oci-archive", "docker-archive"])
def test_images_of_layers_on_disk(site, root_of_busybox, tmp_path, kind):
    """R-01: an OCI layout, in a directory or an archive, and an archive of Docker are converted without network."""
    place = tmp_path / "place"
    if kind == "docker-archive":
        ocilayouts.docker_archive(place, root_of_busybox)
        digest = digest_of(place.read_bytes())
        source = f"{kind}:{place}#sha256={digest[7:]}"
    else:
        digest = ocilayouts.add_image(tmp_path / "layout", root_of_busybox, "1")
        if kind == "oci":
            place = tmp_path / "layout"
        else:
            ocilayouts.pack(tmp_path / "layout", place)
        source = f"{kind}:{place}:1@{digest}"
    # a module that uses a central image looks for it in the site's directory
    central = f"image = 'central'\nimage_dirs = ['{tmp_path}/images']\n"
    site.eb(easyconfig(site, source, central), *([] if kind == "oci" else ["--fetch"]))
    images = tmp_path / "images"
    assert sorted(path.name for path in images.iterdir()) == ["x.sif", "x.sif.source.json"]
    note = json.loads((images / "x.sif.source.json").read_text())
    assert (note["source"], note["source_digest"]) == (source, digest)
    site.run(["apptainer", "--silent", "exec", images / "x.sif", "/bin/busybox", "true"])


@contextmanager
def fetching(site):
    """A function that starts `eb --fetch` and returns process and file with its output; in the end, none is left."""
    started = []

    def start(path):
        command = ["eb", *site.eb_options, "--fetch", path]
        log = site.prefix / f"eb-{len(started)}.log"
        with log.open("w") as output:
            started.append(subprocess.Popen(
                [str(word) for word in command], env={**site.environment, "PYTHONUNBUFFERED": "1"}, cwd=site.work,
                stdin=subprocess.DEVNULL, stdout=output, stderr=output))
        return started[-1], log

    try:
        yield start
    finally:
        for process in started:
            process.kill()
            process.wait()


def wait_for(condition, logs, limit=300):
    """Wait until a condition holds; without it, show what is in files."""
    until = time.monotonic() + limit
    while not condition():
        assert time.monotonic() < until, [log.read_text() for log in logs]
        time.sleep(0.05)


def test_two_at_once_and_one_killed(site, busybox):
    """R-10: three eb fetch once; when the one that fetches is killed, one that waits takes over where it was."""
    with serve_files() as files, fetching(site) as start:
        content = busybox.read_bytes()
        files.content["/x.sif"] = content
        files.cuts, files.held = [500_000], threading.Event()
        path = easyconfig(site, f"{files.url}/x.sif#sha256={digest_of(content)[7:]}")
        partial = site.sources / "e/Example" / f"x.sif.partial-{digest_of(content)[7:19]}"
        first, log = start(path)
        logs = [log]
        try:
            wait_for(lambda: partial.exists() and partial.stat().st_size, logs)
            others = [start(path) for _ in range(2)]
            logs += [log for _, log in others]
            wait_for(lambda: all(f"waiting for process {first.pid} on " in log.read_text() for log in logs[1:]), logs)
            assert first.poll() is None, log.read_text()
            size = partial.stat().st_size
            first.kill()
            first.wait()
            assert [other.wait(300) for other, _ in others] == [0, 0], [log.read_text() for log in logs]
        finally:
            files.held.set()
        assert [headers.get("Range") for _, headers in files.requests] == [None, f"bytes={size}-"], [
            log.read_text() for log in logs]
    assert fetched(site) == ["x.sif", "x.sif.source.json"]
    assert (site.sources / "e/Example/x.sif").read_bytes() == content


def test_full_disks(site, root_of_busybox, tmp_path, fault):
    """R-03: a disk that is too small for the image says so, and nothing of it is left."""
    noise = tmp_path / "root"
    shutil.copytree(root_of_busybox, noise, symlinks=True)
    (noise / "noise").write_bytes(os.urandom(3_000_000))
    with serve_files() as files:
        digest = files.push_image("ai/x", noise)
        files.content["/x.sif"] = bytes(5_000_000)
        sources = {"the file": f"{files.url}/x.sif#sha256={digest_of(bytes(5_000_000))[7:]}",
                   "the conversion": f"docker://{files.host}/ai/x@{digest}"}
        for place, source in sources.items():
            case = fault("disk full", f"while fetching an image: {place}")
            path = easyconfig(site, source)
            eb = " ".join(f"'{word}'" for word in ["eb", *site.eb_options, "--fetch", path])
            script = f"mount -t tmpfs -o size=4m none '{site.sources}'\n{eb}\nfind '{site.sources}' -type f -size +7k"
            result = site.run([*OWN_MOUNTS, "bash", "-c", script], check=False)
            said = " ".join((result.stdout + result.stderr).split())
            case.shown("Not enough space" in said or "No space left on device" in said or "no space left" in said, said)
            left = [path.name for path in map(Path, result.stdout.splitlines()) if path.is_relative_to(site.sources)]
            # complete blobs are kept for the next attempt
            layers = [path.rpartition("sha256:")[2] for path in files.content if "/blobs/" in path]
            case.kept(set(left) <= set(layers), left)
