"""Keywords in an XMP packet: ours are added to existing ones and recorded, so that only ours are removed."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any
from xml.etree import ElementTree as ET

from mltta.errors import MlttaError
from mltta.storage.reading import unwritable

RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
DC = "http://purl.org/dc/elements/1.1/"
META = "adobe:ns:meta/"
#: namespace that records our keywords, for dc:subject and for IPTC
OURS = "urn:mltta:keywords:1.0/"
for _prefix, _uri in {"rdf": RDF, "dc": DC, "x": META, "mltta": OURS}.items():
    ET.register_namespace(_prefix, _uri)

_RDF, _DESCRIPTION, _ABOUT, _ITEM, *_LISTS = (
    f"{{{RDF}}}{name}" for name in ("RDF", "Description", "about", "li", "Bag", "Seq")
)
_SUBJECT = f"{{{DC}}}subject"
_HEAD = '<?xpacket begin="\ufeff" id="W5M0MpCehiHzreSzNTczkc9d"?>\n'
_TAIL = '\n<?xpacket end="w"?>'


class Packet:
    """An editable XMP packet; everything except our keywords is preserved."""

    def __init__(self, content: bytes | None, where: str):
        """Parse a packet or sidecar file, None for a new one; ``where`` names it in errors."""
        self._where = where
        self._root = ET.Element(f"{{{META}}}xmpmeta") if content is None else _parse(content, where)
        if content is None:
            ET.SubElement(self._root, _RDF)
        found = self._root if self._root.tag == _RDF else self._root.find(_RDF)
        if found is None:
            raise MlttaError(
                f"{where}: its XMP contains no RDF, so it takes no keywords; repair or remove it"
            )
        self._rdf = found

    @property
    def subjects(self) -> list[str]:
        """All keywords."""
        return self._items(_SUBJECT)

    def ours(self, place: str = "subject") -> list[str]:
        """The keywords that we have added to a place."""
        return self._items(f"{{{OURS}}}added{place.title()}")

    def set(self, labels: Sequence[str]) -> None:
        """Set our keywords: new ones are added, earlier ones of ours are removed."""
        for label in labels:
            if why := unwritable(label):
                said = f"{self._where}: the label {label[:40]!r} contains {why}, so no keywords were written"
                raise MlttaError(said)
        kept, ours = merged(self.subjects, self.ours(), labels)
        self._put(_SUBJECT, kept)
        self.remember("subject", ours)

    def remember(self, place: str, ours: Sequence[str]) -> None:
        self._put(f"{{{OURS}}}added{place.title()}", ours)

    @property
    def empty(self) -> bool:
        """Whether it contains nothing."""
        return not any(len(one) or set(one.attrib) - {_ABOUT} for one in self._rdf)

    def packet(self) -> bytes:
        """Return the packet as embedded in a photo."""
        return (_HEAD + ET.tostring(self._root, encoding="unicode") + _TAIL).encode()

    def sidecar(self) -> bytes:
        """Return the packet as a sidecar file."""
        ET.indent(self._root, " ")
        return b'<?xml version="1.0" encoding="UTF-8"?>\n' + self.packet() + b"\n"

    def _items(self, name: str) -> list[str]:
        found = [one.attrib[name] for one in self._rdf if name in one.attrib]
        for own in self._rdf.findall(f"./{_DESCRIPTION}/{name}"):
            found += [item.text or "" for item in own.iter(_ITEM)]
        return [text.strip() for text in found if text.strip()]

    def _refuse_to_lose(self, name: str) -> None:
        """Refuse keywords in a form that rewriting would lose: only plain items of one list are preserved."""
        for own in self._rdf.findall(f"./{_DESCRIPTION}/{name}"):
            lists = list(own)
            items = [item for held in lists for item in held]
            plain = all(item.tag == _ITEM and not item.attrib and not len(item) for item in items)
            between = [own.text, *(one.tail for one in (*lists, *items)), *(held.text for held in lists)]
            bags = all(held.tag in _LISTS and not held.attrib for held in lists) and len(lists) < 2
            if not plain or not bags or own.attrib or any(text and text.strip() for text in between):
                said = "qualifiers, fields or bare text, which would be lost; the file was not changed"
                raise MlttaError(f"{self._where}: its keywords (dc:subject) have {said}")

    def _put(self, name: str, values: Sequence[str]) -> None:
        if self._items(name) == list(values):
            return
        self._refuse_to_lose(name)
        for one in self._rdf.findall(_DESCRIPTION):
            one.attrib.pop(name, None)
            for own in one.findall(name):
                one.remove(own)
        home = self._rdf.find(_DESCRIPTION)
        if values:
            if home is None:
                home = ET.SubElement(self._rdf, _DESCRIPTION, {_ABOUT: ""})
            bag = ET.SubElement(ET.SubElement(home, name), f"{{{RDF}}}Bag")
            for value in values:
                ET.SubElement(bag, _ITEM).text = value
        elif home is not None and not len(home) and not set(home.attrib) - {_ABOUT}:
            self._rdf.remove(home)


def merged(there: Sequence[str], ours: Sequence[str], labels: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the keywords of a place including our labels, and which of them are ours, not already there.

    >>> merged(["home", "cat"], ["cat"], ["dog", "home"])
    (['home', 'dog'], ['dog'])
    """
    others = [word for word in there if word not in ours]
    taken = {word.casefold() for word in others}
    new = list(dict.fromkeys(label for label in labels if label.casefold() not in taken))
    return others + new, new


def _parse(content: bytes, where: str) -> ET.Element:
    """Parse a packet, keeping its namespace prefixes for writing."""
    text = content.strip(b"\0 \t\r\n")
    if b"<!DOCTYPE" in text or b"<!ENTITY" in text:
        raise MlttaError(f"{where}: its XMP declares entities, which are not allowed; repair or remove it")
    try:
        found: Any = ET.iterparse(io.BytesIO(text), events=("start-ns",))
        for _, (prefix, uri) in found:
            if prefix and uri not in (RDF, DC, META, OURS) and not prefix.startswith("ns"):
                ET.register_namespace(prefix, uri)
        return ET.fromstring(text, ET.XMLParser(target=ET.TreeBuilder(insert_comments=True)))
    except (ET.ParseError, ValueError, LookupError) as error:
        raise MlttaError(f"{where}: its XMP is damaged ({error}); repair or remove it") from None
