"""A repository of small Debian packages, for an image whose apt is to find it instead of its own sources."""

import hashlib
import subprocess

from support import write_program


def make_deb(repository, name, version="1.0", files=(), **fields):
    """
    Add a package to a repository: files by path, and fields of its control file.

    The fields `preinst` and `postinst` are scripts that it runs when it is installed.
    """
    tree = repository / "trees" / f"{name}_{version}"
    scripts = {one: fields.pop(one) for one in ("preinst", "postinst") if one in fields}
    control = {"Package": name, "Version": version, "Architecture": "all", "Maintainer": "The tests <t@example.org>"}
    control = {**control, "Description": "a package of the tests", **fields}
    (tree / "DEBIAN").mkdir(parents=True)
    (tree / "DEBIAN/control").write_text("".join(f"{key}: {value}\n" for key, value in control.items()))
    for script, text in scripts.items():
        write_program(tree / "DEBIAN" / script, f"#!/bin/sh\nset -e\n{text}\n")
    for path, text in dict(files).items():
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        (tree / path).write_bytes(text if isinstance(text, bytes) else text.encode())
        (tree / path).chmod(0o755 if "/bin/" in path else 0o644)
    deb = repository / f"{name}_{version}_{control['Architecture']}.deb"
    subprocess.run(["dpkg-deb", "--root-owner-group", "--build", tree, deb], check=True, capture_output=True)
    lines = [*(f"{key}: {value}" for key, value in control.items()), f"Filename: ./{deb.name}"]
    lines += [f"Size: {deb.stat().st_size}", f"SHA256: {hashlib.sha256(deb.read_bytes()).hexdigest()}"]
    with (repository / "Packages").open("a") as index:
        index.write("\n".join(lines) + "\n\n")


def binds_of(repository):
    """Return the value of EBSIF_INSTALL_BIND that lets apt in images find a repository, and nothing else."""
    sources = repository / "sources.list"
    # copy: apt keeps what it installs, as it does with what it downloads
    sources.write_text(f"deb [trusted=yes] copy:{repository} ./\n")
    return f"{repository},{sources}:/etc/apt/sources.list"
