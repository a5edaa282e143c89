# SPDX-License-Identifier: Apache-2.0
"""The parts of a release fit together: packages, services and their configuration files."""

import re
import string
import subprocess
import tarfile
from pathlib import Path

import pytest
import release
import yaml

from images.build import containerfiles

ROOT = Path(__file__).resolve().parent.parent
RELEASE = ROOT / "mk" / "release"
PACKAGES = sorted(path.stem for path in (RELEASE / "packages").glob("*.yaml"))


def description(name: str) -> dict:
    values = dict.fromkeys(("VERSION", "ARCH", "BIN", "PAGES", "SHARE", "FILES", "ROOT"), "x")
    return yaml.safe_load(string.Template((RELEASE / "packages" / f"{name}.yaml").read_text()).substitute(values))


def test_packages():
    assert sorted(release.PACKAGES) == PACKAGES


@pytest.mark.parametrize("name", PACKAGES)
def test_contents(name):
    """A package has its programs, and every file that it names exists in the tree."""
    text = (RELEASE / "packages" / f"{name}.yaml").read_text()
    programs = re.findall(r"\$\{BIN\}/([\w-]+)", text)
    assert sorted(programs) == sorted(release.PACKAGES[name])
    for path in re.findall(r"\$\{FILES\}/([\w.@-]+)", text):
        assert (RELEASE / "files" / path).exists(), path
    for path in re.findall(r"\$\{ROOT\}/([\w./-]+)", text):
        assert (ROOT / path).exists(), path
    assert all("dst" in entry for entry in description(name)["contents"])


@pytest.mark.parametrize("name", PACKAGES)
def test_services(name):
    """A service starts a program of its package, with a configuration file of its package."""
    has = {entry["dst"] for entry in description(name)["contents"]}
    for unit in (path for path in has if path.endswith(".service")):
        text = (RELEASE / "files" / Path(unit).name).read_text()
        assert set(re.findall(r"/usr/bin/[\w-]+", text)) <= has
        config = re.search(r"--config (\S+)", text)
        assert config is None or config[1] in has


@pytest.mark.parametrize("name", PACKAGES)
def test_services_end(name):
    """A package registers its services with systemd, and stops and disables them before its
    removal.
    """
    has = description(name)
    units = [Path(entry["dst"]).name for entry in has["contents"] if entry["dst"].endswith(".service")]
    assert units
    after, before = (
        (RELEASE / "files" / Path(has["scripts"][script]).name).read_text() for script in ("postinstall", "preremove")
    )
    assert "systemctl daemon-reload" in after
    for unit in units:
        assert re.search(rf"systemctl disable .*{re.escape(unit)}", before), unit


@pytest.mark.parametrize("runs", [True, False], ids=["systemd runs", "no systemd runs"])
@pytest.mark.parametrize("name", PACKAGES)
def test_failing_services(name, runs, tmp_path):
    """A service that cannot be started or stopped prevents neither an upgrade nor a removal. The
    links of systemctl enable go with the package, in a chroot too.
    """
    called = tmp_path / "called"
    for program, text in (("systemctl", f'echo "$@" >> {called}\nexit 1'), ("systemd-sysusers", "exit 0")):
        (tmp_path / program).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / program).chmod(0o755)
    running = tmp_path / "running"
    if runs:
        running.mkdir()
    scripts = description(name)["scripts"]
    for script, argument in (("postinstall", "configure"), ("preremove", "remove")):
        text = (RELEASE / "files" / Path(scripts[script]).name).read_text()
        text = text.replace("/run/systemd/system", str(running))
        path = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
        done = subprocess.run(["sh", "-c", text, "sh", argument], env=path, capture_output=True, text=True)
        assert done.returncode == 0, f"{script}: {done.stderr}"
    words = {line.split()[0] for line in called.read_text().splitlines()}
    assert "disable" in words
    assert ("stop" in words) == ("daemon-reload" in words) == runs


@pytest.mark.parametrize(("program", "name"), [("netcraq dev", "netcraq"), ("etcd-monitor", "etcd-monitor")])
def test_configuration(program, name):
    """Each option in a configuration file is a flag of the program."""
    binary, *words = program.split()
    if not (path := ROOT / "bin" / binary).exists():
        pytest.skip(f"there is no bin/{binary}: make build")
    text = subprocess.run([path, *words, "--help"], capture_output=True, text=True, check=True).stdout
    for option in yaml.safe_load((RELEASE / "files" / f"{name}.yaml").read_text()):
        assert f"--{option} " in text, option


def test_chart_of_a_release():
    """The chart of a release names the release's images, and has no other changes."""
    text = (ROOT / "cni-plugin/deploy/chart/values.yaml").read_text()
    before, after = yaml.safe_load(text), yaml.safe_load(release.released_values(text, "1.2.3"))
    for image, name in ((after["image"], "netcraq-agent"), (after["policies"]["image"], "netcraq-policies")):
        assert (image["repository"], image["tag"]) == (f"ghcr.io/netcraq/{name}", "1.2.3")
        assert name in containerfiles()
    for values in (before, after):
        for image in (values["image"], values["policies"]["image"]):
            del image["repository"], image["tag"]
    assert before == after


def test_check(tmp_path, monkeypatch, capsys):
    """--check compares with what the folder has, and fills it first only if it is empty."""
    builds = []

    def build(out, go, parts, say):
        builds.append(out)
        out.mkdir(exist_ok=True)
        (out / "a").write_text("same")

    monkeypatch.setattr(release, "build", build)
    monkeypatch.setattr("sys.argv", ["release.py", "--check", "--out", str(tmp_path / "dist")])
    assert release.main() == 0 and builds[0] == tmp_path / "dist" and len(builds) == 2
    assert release.main() == 0 and len(builds) == 3
    (tmp_path / "dist" / "b").write_text("of another part")
    monkeypatch.setattr("sys.argv", ["release.py", "--check", "--out", str(tmp_path / "dist"), "python"])
    assert release.main() == 0 and len(builds) == 4
    (tmp_path / "dist" / "a").write_text("another")
    assert release.main() == 1 and len(builds) == 5
    assert "differ in: a" in capsys.readouterr().err


def test_scripts():
    """The maintainer scripts are shell scripts without syntax errors."""
    for path in sorted((RELEASE / "files").glob("*.p*")):
        if path.suffix in (".postinst", ".prerm", ".postrm"):
            assert path.read_text().startswith("#!/bin/sh\nset -e\n")
            subprocess.run(["sh", "-n", path], check=True)


def test_tar(tmp_path):
    """Two archives of the same files have the same bytes, even if made at different times."""
    files = {}
    for name in ("b", "a"):
        files[name] = tmp_path / name
        files[name].write_text(name)
    files["a"].chmod(0o755)
    made = release.Release("1.0.0", "0" * 40, 1_700_000_000, tmp_path, "go", tmp_path)
    made.tar(tmp_path / "one.tar.gz", files, "top")
    files["b"].touch()
    made.tar(tmp_path / "two.tar.gz", dict(sorted(files.items())), "top")
    assert (tmp_path / "one.tar.gz").read_bytes() == (tmp_path / "two.tar.gz").read_bytes()
    with tarfile.open(tmp_path / "one.tar.gz") as archive:
        entries = archive.getmembers()
    assert [(e.name, e.mode, e.uid, e.mtime) for e in entries] == [
        ("top/a", 0o755, 0, 1_700_000_000),
        ("top/b", 0o644, 0, 1_700_000_000),
    ]


def test_compare(tmp_path):
    """A file that differs, or that only one build has, is listed."""
    for folder in ("one", "two"):
        (tmp_path / folder / "x").mkdir(parents=True)
        (tmp_path / folder / "x" / "same").write_text("same")
        (tmp_path / folder / "other").write_text(folder)
    (tmp_path / "two" / "more").write_text("")
    assert release.compare(tmp_path / "one", tmp_path / "two") == ["more", "other"]
