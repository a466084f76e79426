# SPDX-License-Identifier: Apache-2.0
"""Tables of a document that come from data: between lines <!-- begin:NAME --> and <!-- end:NAME -->."""
import re
import sys


def update(document, tables, script, check):
    """Writes the lines of tables[NAME] between the markers of each NAME. With check, writes nothing and ends with a sentence
    that names `script` if the document has others; ends with one, too, if a pair of markers is not there exactly once."""
    text = was = document.read_text()
    for marker, lines in tables.items():
        begin, end = f"<!-- begin:{marker} -->\n", f"<!-- end:{marker} -->"
        body = "\n".join(lines).rstrip("\n")
        body = begin + (body + "\n" if body else "") + end
        text, count = re.subn(f"{begin}.*?{end}", lambda _, body=body: body, text, flags=re.S)
        if count != 1:
            sys.exit(f"{document.name} must have the markers {begin.strip()} and {end} once.")
    if not check:
        document.write_text(text)
    elif text != was:
        sys.exit(f"The tables of {document.name} are not what data/ gives: run python3 docs/{script}.")
