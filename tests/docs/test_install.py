"""What `cmake --install` puts down, used from there, and what a release is made of."""

import hashlib
import json
import os
import re
import runpy
import struct
import subprocess
import tarfile
import types

import pytest

from docs.test_links import broken
from product import BUILD, HERE, Result, workload

ROOT = HERE.parent


@pytest.fixture(scope="module")
def prefix(tmp_path_factory):
    folder = tmp_path_factory.mktemp("installed")
    subprocess.run(["cmake", "--install", BUILD, "--prefix", folder / "first"], check=True, capture_output=True)
    # A prefix can be moved: nothing in it knows where it was put.
    (folder / "first").rename(folder / "second place")
    return folder / "second place"


def test_layout(prefix):
    for name in ("bin/lumelift", "libexec/lumelift/liblumelift-metal.dylib", "libexec/lumelift/lumelift-probe", "libexec/lumelift/SHA256SUMS",
                 "share/lumelift/profiles/tested.yaml", "share/lumelift/agent.plist", "share/lumelift/schemas/profile.schema.json",
                 "share/man/man1/lumelift.1", "share/man/man1/lumelift-unlock.1", "share/bash-completion/completions/lumelift",
                 "share/zsh/site-functions/_lumelift", "share/fish/vendor_completions.d/lumelift.fish", "share/doc/lumelift/README.md",
                 "share/doc/lumelift/docs/errors.md", "share/doc/lumelift/docs/pictures/unlock.svg"):
        assert (prefix / name).is_file(), name
    assert os.access(prefix / "bin/lumelift", os.X_OK)


def test_it_works_from_there(prefix, lab, tmp_path):
    lab.add_vm("ci-1", running=True, arch="x86_64")
    lab.start()
    before = lab.snapshot()
    env = {**lab.env(), "LUMELIFT_PORT": str(lab.port), "PATH": f"{prefix}/bin:{lab.env()['PATH']}"}

    def lumelift(*words):
        return Result(subprocess.run(["lumelift", *map(str, words)], env=env, cwd=tmp_path, capture_output=True, text=True, check=False,
                                     stdin=subprocess.DEVNULL))

    kit = [f for f in lumelift("--json", "doctor").json["findings"] if f["id"] in ("kit", "templates")]
    assert [f["level"] for f in kit] == ["ok", "ok"] and all(str(prefix) in f["evidence"] for f in kit)
    assert [f["manual"] for f in kit] == [f"{prefix}/share/doc/lumelift/docs/errors.md#{f['id']}" for f in kit]
    assert lumelift("unlock", "ci-1", "--workload", workload(tmp_path / "work")).rc == 0
    assert lumelift("rollback", "ci-1").rc == 0
    assert lab.snapshot() == before


def test_links_of_the_installed_pages(prefix):
    pages = sorted((prefix / "share/doc/lumelift").rglob("*.md"))
    assert len(pages) > 15
    assert {page.name: list(broken(page)) for page in pages if list(broken(page))} == {}


def test_through_a_link(prefix, tmp_path):
    """As Homebrew puts it on PATH."""
    (tmp_path / "lumelift").symlink_to(prefix / "bin/lumelift")
    done = subprocess.run([tmp_path / "lumelift", "complete", "--", "unlock", "--profile", ""], capture_output=True, text=True, check=True)
    assert "tested" in done.stdout


@pytest.fixture(scope="module")
def release(tmp_path_factory):
    folder = tmp_path_factory.mktemp("release")
    for name in ("one", "two"):
        subprocess.run([ROOT / "templates/packaging/release", BUILD, folder / name, "--url", "https://example.org/lumelift"], check=True, capture_output=True)
    return folder


def test_a_release_is_reproducible(release):
    names = sorted(p.name for p in (release / "one").iterdir())
    assert len(names) == 5 and names == sorted(p.name for p in (release / "two").iterdir())
    for name in names:
        assert (release / "one" / name).read_bytes() == (release / "two" / name).read_bytes(), name


def test_a_release_is_whole(release, tmp_path):
    folder = release / "one"
    subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=folder, check=True, capture_output=True)
    binary = next(folder.glob("lumelift-*-linux-*.tar.gz"))
    with tarfile.open(binary) as archive:
        assert {(m.uid, m.gid, m.uname) for m in archive} == {(0, 0, "")} and len({m.mtime for m in archive}) == 1
        archive.extractall(tmp_path)
    told = json.loads(subprocess.run([next(tmp_path.glob("*/bin/lumelift")), "--version", "--json"], check=True, capture_output=True, text=True).stdout)
    sbom = json.loads(next(folder.glob("*.spdx.json")).read_text())
    assert sbom["spdxVersion"] == "SPDX-2.3"
    assert {p["name"]: p["versionInfo"] for p in sbom["packages"]} == {"lumelift": told["lumelift"], **told["libraries"]}
    assert all(p["licenseDeclared"] != "NOASSERTION" for p in sbom["packages"])
    assert sbom["packages"][0]["checksums"][0]["checksumValue"] == hashlib.sha256(binary.read_bytes()).hexdigest()


def test_r102_a_program_without_a_uuid_is_not_released():
    """macOS ties the permission for the Local Network to it."""
    release = types.SimpleNamespace(**runpy.run_path(str(ROOT / "templates/packaging/release")))
    good = {name: ((BUILD / "shim" / name).read_bytes(), 0o755) for name in ("liblumelift-metal.dylib", "lumelift-probe")}
    assert all(len(list(release.slices(content))) == 2 for content, _ in good.values())
    assert release.require_uuids({**good, "lumelift": ((BUILD / "lumelift").read_bytes(), 0o755), "text": (b"text", 0o644)})
    for name, (content, mode) in good.items():
        command = struct.pack("<II", release.LC_UUID, 24)
        assert content.count(command) >= 2
        # The last slice alone without one.
        at = content.rindex(command)
        stripped = content[:at] + struct.pack("<II", 0x26, 24) + content[at + 8:]
        with pytest.raises(SystemExit, match=f"{name} has no LC_UUID"):
            release.require_uuids({**good, name: (stripped, mode)})


RUBY = """
require 'json'; require 'pathname'; require 'open3'
class Pathname; def write(text); File.write(to_s, text); end; end
class Formula
  def self.method_missing(name, *args, &block)
    (@facts ||= {})[name] = args
  end
  def self.test(&block) = @check = block
  def self.respond_to_missing?(*) = true
  class << self; attr_reader :facts, :check; end
  attr_reader :bin, :libexec, :testpath
  def initialize(prefix, testpath)
    @bin, @libexec, @testpath = Pathname(prefix)/'bin', Pathname(prefix)/'libexec', Pathname(testpath)
  end
  def version = self.class.facts[:version][0]
  def shell_output(line, status = 0)
    out, ended = Open3.capture2(line)
    raise "#{line}: status #{ended.exitstatus}\\n#{out}" unless ended.exitstatus == status
    out
  end
  def assert_equal(wanted, seen) = (wanted == seen or raise "#{seen.inspect} is not #{wanted.inspect}")
  def assert_match(wanted, seen) = ((wanted.is_a?(String) ? seen.include?(wanted) : wanted =~ seen) or raise "#{seen.inspect} lacks #{wanted.inspect}")
end
load ARGV[0]
Lumelift.new(ARGV[1], ARGV[2]).instance_eval(&Lumelift.check)
puts JSON.generate(Lumelift.facts.transform_values { |v| v.map(&:to_s) })
"""


def test_the_formula_tests_itself(release, prefix, lab, tmp_path):
    lab.start()
    link = tmp_path / "prefix"
    link.symlink_to(prefix)
    done = subprocess.run(["ruby", "-e", RUBY, release / "one/lumelift.rb", link, tmp_path], env=lab.env(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    source = next((release / "one").glob("lumelift-*[0-9].tar.gz"))
    assert facts["sha256"] == [hashlib.sha256(source.read_bytes()).hexdigest()]
    assert re.fullmatch(r"https://example.org/lumelift/lumelift-[\d.]+\.tar\.gz", facts["url"][0])
