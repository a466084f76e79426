# SPDX-License-Identifier: Apache-2.0
"""Runs a small audit with --html and reads its page with an XML parser.

    python3 check_page.py PROGRAM

Checks that the page is well formed and self-contained, that anchors lead somewhere, that every drawing says what it
shows, that coordinates are numbers, and that text has contrast in the light and in the dark.
"""
import itertools
import pathlib
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree

HTML = "{http://www.w3.org/1999/xhtml}"
SVG = "{http://www.w3.org/2000/svg}"
COORDINATES = {"x", "y", "x1", "x2", "y1", "y2", "width", "height"}


def page_of(program):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "page.html"
        sizes = ["--tokens", "5", "--hidden", "16", "--vocab", "60"]
        done = subprocess.run([program, "audit", *sizes, "--html", path], capture_output=True, text=True)
        assert done.returncode in (0, 1), done.stderr
        assert [p.name for p in path.parent.iterdir()] == ["page.html"], "something else was left behind"
        return path.read_text(encoding="utf-8"), done.returncode


def check_refusals(program):
    """What cannot be written is refused before the work: an audit of the published size would take an hour."""
    for path in ("/no/such/folder/page.html", "-"):
        done = subprocess.run([program, "audit", "--full", "--html", path], capture_output=True, text=True)
        assert done.returncode == 2 and not done.stdout and done.stderr.count("\n") == 1, done.stderr


def luminance(colour):
    def linear(share):
        return share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4
    red, green, blue = (linear(int(colour[i:i + 2], 16) / 255) for i in (1, 3, 5))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue  # WCAG 2.1, relative luminance


def contrast(a, b):
    high, low = sorted((luminance(a), luminance(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def check_colours(style):
    themes = [dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", block)) for block in
              re.findall(r":root \{(.*?)\}", style, re.DOTALL)]
    assert len(themes) == 3, "light, dark and print"
    pairs = list(itertools.product(("ink", "dim", "bf16", "fp32", "f64", "bad", "good"), ("page", "panel")))
    pairs += [("ink", "some"), ("ink", "near"), ("fp32", "some"), ("bf16", "bf16-page"), ("bad", "bad-page"),
              ("dim", "bad-page")]
    for theme in themes:
        for text, background in pairs:
            ratio = contrast(theme[text], theme[background])
            assert ratio >= 4.5, f"{text} {theme[text]} on {background} {theme[background]}: {ratio:.2f}"


def main():
    check_refusals(sys.argv[1])
    text, status = page_of(sys.argv[1])
    assert text.startswith("<!DOCTYPE html>")
    root = ElementTree.fromstring(text)
    assert root.tag == HTML + "html" and root.get("lang") == "en"
    elements = list(root.iter())

    # Nothing is fetched and nothing runs.
    for outside in ("script", "link", "img", "iframe", "object"):
        assert not root.findall(f".//{HTML}{outside}"), outside
    for element in elements:
        for name, value in element.attrib.items():
            assert not value.startswith(("http:", "https:", "//", "data:")), value
            if name == "href":
                assert value.startswith("#"), value
            if name in COORDINATES:
                assert re.fullmatch(r"-?\d+(\.\d+)?%?", value), f'{element.tag} {name}="{value}"'
            if name in ("width", "height"):
                assert not value.startswith("-"), value
    style = root.find(f"./{HTML}head/{HTML}style").text
    assert "url(" not in style and "@import" not in style

    ids = [element.get("id") for element in elements if element.get("id")]
    assert len(ids) == len(set(ids)), "an id occurs twice"
    for element in elements:
        target = element.get("href")
        assert target is None or target[1:] in ids, target

    # Every drawing is either described or said to be decoration.
    drawings = root.findall(f".//{SVG}svg")
    assert len(drawings) > 100
    for drawing in drawings:
        title = drawing.find(f"./{SVG}title")
        assert drawing.get("aria-hidden") == "true" or (title is not None and title.text), "no title"
    for table in root.findall(f".//{HTML}table"):
        widths = {len(row) for row in table.iter(HTML + "tr")}
        assert len(widths) == 1, f"rows of {widths} cells"
        assert table.find(f"./{HTML}caption") is not None
    headings = [int(element.tag[-1]) for element in elements if re.fullmatch(rf"{HTML}h[1-6]", element.tag)]
    assert headings[0] == 1 and headings.count(1) == 1
    assert all(after - before <= 1 for before, after in zip(headings, headings[1:])), "a heading's level is skipped"

    words = "".join(root.itertext())
    assert not re.search(r"\b(nan|inf)\b", words), "NaN and infinity have words"
    assert ("✕ Not passed" if status else "✓ Passed") in words
    check_colours(style)
    print(f"{len(text)} characters, {len(drawings)} drawings")


if __name__ == "__main__":
    main()
