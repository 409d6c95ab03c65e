"""Links between the documents lead somewhere: file and heading."""

import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "tests").rglob("*.md")])
LINK = re.compile(r"(?<!\!)\[[^\]\n]+\]\(([^)\s]+)\)|<img[^>]*\bsrc=\"([^\"]+)\"|!\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```|^ {4}.*?$", re.M | re.S)


def anchors(page):
    """Headings as they are linked to: lower case, blanks to hyphens, other signs dropped."""
    out = set()
    for heading in re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S), re.M):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        out.add(re.sub(r"[^\w\- ]", "", plain.strip().lower()).replace(" ", "-"))
    return out


def broken(page):
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S)
    for groups in LINK.findall(text):
        target = next(g for g in groups if g)
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = target.partition("#")
        path = (page.parent / file).resolve() if file else page
        if not path.exists():
            yield f"{target}: no such file"
        elif anchor and path.suffix == ".md" and anchor not in anchors(path):
            yield f"{target}: no such heading"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_links(page):
    assert list(broken(page)) == []


def test_a_broken_link_is_seen(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# One heading\n[a](#one-heading) [b](#another) [c](gone.md)\n")
    assert list(broken(page)) == ["#another: no such heading", "gone.md: no such file"]


def test_every_page_can_be_reached_from_the_readme():
    reached, todo = set(), [ROOT / "README.md"]
    while todo:
        page = todo.pop()
        if page in reached:
            continue
        reached.add(page)
        for groups in LINK.findall(page.read_text()):
            target = next(g for g in groups if g).partition("#")[0]
            path = (page.parent / target).resolve() if target and not re.match(r"[a-z]+:", target) else page
            if path.suffix == ".md" and path.exists():
                todo.append(path)
    assert sorted(p for p in PAGES if p not in reached and p.is_relative_to(ROOT / "docs")) == []
