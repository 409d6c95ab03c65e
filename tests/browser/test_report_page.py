"""The report page in a real browser: headless Chromium opens it in frames of several widths and measures what it made of it.

LUMELIFT_BIN names the executable under test. Screenshots go to LUMELIFT_SHOTS, if that is set, never into the source tree.
"""
import html
import json
import os
import pathlib
import re
import shutil
import subprocess

import pytest

SOURCE = pathlib.Path(__file__).resolve().parents[2]
EVIDENCE = SOURCE / "tests/data/evidence/m1-ultra-tinyllama"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run",
         "--disable-sync", "--disable-component-update", "--hide-scrollbars", "--allow-file-access-from-files",
         # Whatever the page might want from elsewhere finds no way out.
         "--host-resolver-rules=MAP * ~NOTFOUND"]

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine")

MEASURE = """
const frame = document.getElementById('page');
frame.onload = () => {
  const page = frame.contentDocument, view = frame.contentWindow, root = page.documentElement;
  const channel = c => { c /= 255; return c <= 0.03928 ? c / 12.92 : Math.pow((c + 0.055) / 1.055, 2.4); };
  const light = rgb => { const [r, g, b] = rgb.match(/[\\d.]+/g).map(Number).map(channel);
                         return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const ground = node => { for (let at = node; at; at = at.parentElement) {
    const color = view.getComputedStyle(at).backgroundColor;
    if (color !== 'rgba(0, 0, 0, 0)') return color; } return 'rgb(255, 255, 255)'; };
  let contrast = 99, contrastAt = '', smallest = 99;
  for (const node of page.querySelectorAll('h1,h2,h3,p,span,b,li,td,th,caption,text,footer')) {
    if (!node.textContent.trim()) continue;
    const style = view.getComputedStyle(node);
    const ink = node.tagName === 'text' ? style.fill : style.color;
    const [a, b] = [light(ink), light(ground(node))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < contrast) { contrast = ratio; contrastAt = node.textContent.slice(0, 40); }
    smallest = Math.min(smallest, parseFloat(style.fontSize));
  }
  const charts = [...page.querySelectorAll('svg[role=img]')];
  const box = node => node.getBoundingClientRect();
  const outside = charts.flatMap(c => [...c.querySelectorAll('circle')].filter(d =>
      box(d).left < box(c).left - 4 || box(d).right > box(c).right + 4 || box(d).top < box(c).top - 1 ||
      box(d).bottom > box(c).bottom + 1)).length;
  document.getElementById('result').textContent = JSON.stringify({
    width: root.clientWidth, overflow: root.scrollWidth - root.clientWidth, contrast, contrastAt, smallest,
    charts: charts.length, unnamed: charts.filter(c => !c.getAttribute('aria-label')).length,
    focusable: charts.filter(c => c.tabIndex === 0).length + [...page.querySelectorAll('[role=region]')].filter(
      r => r.tabIndex === 0).length,
    regions: page.querySelectorAll('[role=region][aria-label]').length,
    dots: page.querySelectorAll('circle').length, outside,
    duplicateIds: [...page.querySelectorAll('[id]')].length - new Set([...page.querySelectorAll('[id]')].map(n => n.id)).size,
    brokenLabels: [...page.querySelectorAll('[aria-labelledby]')].filter(
      n => !page.getElementById(n.getAttribute('aria-labelledby'))).length,
    headings: [...page.querySelectorAll('h1,h2,h3')].map(h => Number(h.tagName[1])),
    cellsWithoutHeader: [...page.querySelectorAll('tbody tr')].filter(r => !r.querySelector('th[scope=row]')).length,
    resources: view.performance.getEntriesByType('resource').map(r => r.name),
    scripts: page.scripts.length, language: root.lang, ground: view.getComputedStyle(page.body).backgroundColor,
    executed: view.hijacked === true || window.hijacked === true,
    text: page.body.innerText});
};
"""


def chromium(*arguments, profile):
    return subprocess.run([CHROMIUM, *FLAGS, f"--user-data-dir={profile}", *arguments], capture_output=True, text=True,
                          timeout=120, check=True).stdout


def make_page(folder, *inputs):
    page = folder / "report.html"
    binary = os.environ.get("LUMELIFT_BIN")
    if not binary:
        pytest.skip("LUMELIFT_BIN is not set")
    done = subprocess.run([binary, "report", "--format", "html", "--output", str(page), *map(str, inputs)],
                          capture_output=True, text=True, timeout=60)
    assert done.returncode in (0, 5), done.stderr
    return page


def measure(page, width, scheme="light"):
    frame = page.with_name("frame.html")
    frame.write_text(f'<!doctype html><pre id="result"></pre><script>window.addEventListener("DOMContentLoaded", () => {{ {MEASURE} }});'
                     f'</script><iframe id="page" width="{width}" height="900" style="border:0" src="{page.name}"></iframe>')
    out = chromium(f"--blink-settings=preferredColorScheme={0 if scheme == 'dark' else 1}", "--virtual-time-budget=5000",
                   "--dump-dom", frame.as_uri(), profile=page.parent / "profile")
    found = re.search(r'<pre id="result">(.*?)</pre>', out, re.S)
    assert found and found.group(1), out[:2000]
    shots = os.environ.get("LUMELIFT_SHOTS")
    if shots:
        # A headless window is never narrower than 500 pixels, so the frame is pictured and not the page.
        chromium(f"--blink-settings=preferredColorScheme={0 if scheme == 'dark' else 1}", f"--window-size={max(width, 500)},900",
                 f"--screenshot={shots}/report-{width}-{scheme}.png", frame.as_uri(), profile=page.parent / "profile")
    return json.loads(html.unescape(found.group(1)))


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [320, 1000])
def test_page_is_readable(tmp_path, width, scheme):
    seen = measure(make_page(tmp_path, EVIDENCE), width, scheme)
    assert seen["width"] == width
    assert seen["overflow"] <= 0, "the page scrolls sideways"
    assert seen["contrast"] >= 4.5, (seen["contrast"], seen["contrastAt"])
    assert seen["smallest"] >= 12
    assert seen["ground"] == ("rgb(13, 17, 23)" if scheme == "dark" else "rgb(255, 255, 255)")
    assert seen["dots"] == 100 and seen["outside"] == 0
    for figure in ("4871.99", "431.8625", "4786.7", "286.7055", "12.6307", "206.5965", "11.0839×", "16.3567×", "98.2494 %",
                   "72.0588 %", "1.0054×", "0.9929×", "no material change", "32.8 %"):
        assert figure in seen["text"]


def test_page_works_without_eyes_or_mouse(tmp_path):
    seen = measure(make_page(tmp_path, EVIDENCE), 1000)
    assert seen["language"] == "en"
    assert seen["charts"] == 10 and seen["unnamed"] == 0
    assert seen["regions"] == 4 and seen["focusable"] == seen["charts"] + seen["regions"]
    assert seen["duplicateIds"] == 0 and seen["brokenLabels"] == 0 and seen["cellsWithoutHeader"] == 0
    assert seen["headings"][0] == 1 and seen["headings"].count(1) == 1
    assert all(after - before <= 1 for before, after in zip(seen["headings"], seen["headings"][1:])), "a heading level is skipped"


def test_page_fetches_and_runs_nothing(tmp_path):
    seen = measure(make_page(tmp_path, EVIDENCE), 1000)
    assert seen["resources"] == [] and seen["scripts"] == 0


def test_foreign_text_stays_text(tmp_path):
    rows = json.loads((EVIDENCE / "tiny-stock-minimal.json").read_text())
    evil = '<img src=x onerror="parent.hijacked=true"><script>window.hijacked=true {{workloads}}'
    for row in rows:
        row["model_filename"] = evil
        row["build_commit"] = "'\"><svg onload=parent.hijacked=true>"
    (tmp_path / "stock.json").write_text(json.dumps(rows))
    seen = measure(make_page(tmp_path, tmp_path / "stock.json"), 320)
    assert not seen["executed"] and seen["scripts"] == 0 and seen["resources"] == []
    assert seen["overflow"] <= 0
    assert "window.hijacked=true" in seen["text"]


def test_page_prints(tmp_path):
    page = make_page(tmp_path, EVIDENCE)
    pdf = tmp_path / "report.pdf"
    chromium(f"--print-to-pdf={pdf}", "--no-pdf-header-footer", page.as_uri(), profile=tmp_path / "profile")
    data = pdf.read_bytes()
    assert data.startswith(b"%PDF")
    assert 2 <= len(re.findall(rb"/Type\s*/Page\b", data)) <= 8
