# SPDX-License-Identifier: Apache-2.0
"""The project's images: archives, reproducible builds, SBOMs."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile

import pytest

from images import archive
from images.build import ROOT, Options, build, containerfiles, programs


def test_image(tmp_path):
    program = tmp_path / "program"
    program.write_bytes(b"\x7fELF")
    wanted = archive.Image("x.test/y:1", ["/program"], files={"program": program}, links={"/sbin/other": "program"})
    wanted.labels = {"b": "2", "a": "1"}
    digest = wanted.write(tmp_path / "a.tar")
    assert wanted.write(tmp_path / "b.tar") == digest
    assert (tmp_path / "a.tar").read_bytes() == (tmp_path / "b.tar").read_bytes()
    with tarfile.open(tmp_path / "a.tar") as tar:
        read = lambda name: tar.extractfile(name).read()  # noqa: E731
        # as a docker-archive
        docker = json.loads(read("manifest.json"))[0]
        config = json.loads(read(docker["Config"]))
        with tarfile.open(fileobj=tar.extractfile(docker["Layers"][0])) as layer:
            assert layer.extractfile("program").read() == b"\x7fELF"
            assert layer.getmember("sbin/other").issym()
            assert {(one.uid, one.gid, one.mtime) for one in layer} == {(0, 0, 0)}
        assert docker["RepoTags"] == ["x.test/y:1"]
        assert config["config"]["Entrypoint"] == ["/program"]
        assert config["config"]["Labels"] == {"a": "1", "b": "2"}
        # as an OCI image layout
        assert json.loads(read("oci-layout")) == {"imageLayoutVersion": "1.0.0"}
        (listed,) = json.loads(read("index.json"))["manifests"]
        assert listed["digest"] == digest
        assert listed["annotations"]["io.containerd.image.name"] == "x.test/y:1"
        manifest = json.loads(read("blobs/" + digest.replace(":", "/")))
        for blob in (listed, manifest["config"], *manifest["layers"]):
            content = read("blobs/" + blob["digest"].replace(":", "/"))
            assert (blob["size"], blob["digest"]) == (len(content), f"sha256:{hashlib.sha256(content).hexdigest()}")
        assert "blobs/" + manifest["config"]["digest"].replace(":", "/") == docker["Config"]


def test_containerfiles(tmp_path):
    names = (
        "netcraq-agent",
        "netcraqctl",
        "netcraq-cni",
        "loopback",
        "host-local",
        "portmap",
        "bandwidth",
        "etcd-monitor",
        "netcraq-pipelets",
        "netcraq-policies",
    )
    for name in names:
        (tmp_path / name).write_bytes(name.encode())
    found = {name: archive.from_containerfile(path, name, tmp_path) for name, path in containerfiles().items()}
    assert set(found) == {"netcraq-agent", "netcraq-policies", "etcd-monitor", "pipelets"}
    assert found["etcd-monitor"].files == {"usr/local/bin/etcd-monitor": tmp_path / "etcd-monitor"}
    for one in found.values():
        assert one.entrypoint[0].lstrip("/") in one.files


@pytest.mark.parametrize("line", ["RUN true", "COPY file /", "COPY --from=build /out/a /b"])
def test_containerfile_not_understood(tmp_path, line):
    (tmp_path / "Containerfile").write_text(f"FROM golang AS build\nRUN make\nFROM scratch\n{line}\n")
    with pytest.raises(archive.ImageError, match="understood"):
        archive.from_containerfile(tmp_path / "Containerfile", "x", tmp_path)


def project(folder, main="package main\n\nfunc main() { println(`hello`) }\n"):
    """A project of one program, and its Containerfile."""
    (folder / "cni-plugin" / "deploy").mkdir(parents=True)
    (folder / "go.mod").write_text("module example.test/hello\n\ngo 1.21\n")
    (folder / "hello").mkdir()
    (folder / "hello" / "main.go").write_text(main)
    containerfile = folder / "cni-plugin" / "deploy" / "Containerfile.hello"
    containerfile.write_text(
        "FROM golang AS build\nCOPY . .\nRUN CGO_ENABLED=0 go build -trimpath \\\n  -o /out/ ./hello\n\n"
        'FROM scratch\nCOPY --from=build /out/hello /usr/local/bin/\nENTRYPOINT ["/usr/local/bin/hello"]\n'
    )
    return containerfile


def needs_go():
    if shutil.which(os.environ.get("GO", "go")) is None:
        pytest.skip("there is no go on the PATH")


def test_same_bytes_wherever_it_is_built(tmp_path):
    needs_go()
    digests = []
    for name in ("one", "two/deeper"):
        folder, out = tmp_path / name, tmp_path / name / "built"
        containerfile = project(folder)
        out.mkdir()
        programs(containerfile, out, archive.machine(), folder)
        image = archive.from_containerfile(containerfile, "x.test/hello:1", out)
        digests.append((image.write(folder / "hello.tar"), (folder / "hello.tar").read_bytes()))
    assert digests[0] == digests[1]
    ran = subprocess.run([out / "hello"], capture_output=True, text=True, check=True)
    assert ran.stderr == "hello\n"
    # ... and others, of something else
    folder = tmp_path / "three"
    containerfile = project(folder, "package main\n\nfunc main() { println(`other`) }\n")
    (folder / "built").mkdir()
    programs(containerfile, folder / "built", archive.machine(), folder)
    other = archive.from_containerfile(containerfile, "x.test/hello:1", folder / "built").write(folder / "hello.tar")
    assert other != digests[0][0]


def test_what_does_not_compile_is_said(tmp_path):
    needs_go()
    containerfile = project(tmp_path, "package main\n\nfunc main() { nothing() }\n")
    (tmp_path / "built").mkdir()
    with pytest.raises(archive.ImageError, match="undefined: nothing"):
        programs(containerfile, tmp_path / "built", archive.machine(), tmp_path)
    containerfile.write_text("FROM golang AS build\nRUN true\nFROM scratch\n")
    with pytest.raises(archive.ImageError, match="writes nothing to /out/"):
        programs(containerfile, tmp_path / "built", archive.machine(), tmp_path)
    containerfile.write_text("FROM golang AS build\nFROM scratch\n")
    with pytest.raises(archive.ImageError, match="nothing is built"):
        programs(containerfile, tmp_path / "built", archive.machine(), tmp_path)


def test_bad_input(tmp_path):
    with pytest.raises(archive.ImageError, match="there is no image x; there are etcd-monitor"):
        build(tmp_path, Options(names=["x"]), print)
    with pytest.raises(archive.ImageError, match="the tag"):
        build(tmp_path, Options(tag="a b"), print)
    done = subprocess.run(
        [sys.executable, "-m", "images", "x"], cwd=ROOT / "cni-plugin", capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (1, "") and "make images: there is no image x" in done.stderr
