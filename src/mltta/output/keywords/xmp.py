"""Keywords in an XMP packet: bytes are inserted and removed, and everything else keeps its bytes.

Our keywords are recorded in the packet, so that only ours are removed later.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from xml.parsers import expat
from xml.sax.saxutils import escape, quoteattr

from mltta.errors import MlttaError

RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
META = "adobe:ns:meta/"
#: namespace that records our keywords by place, and the packet as it was before
OURS = "urn:mltta:keywords:1.0/"
#: where photo programs look for keywords: namespace, prefix, property, kind of list
PLACES = {
    "subject": ("http://purl.org/dc/elements/1.1/", "dc", "subject", "Bag"),
    "hierarchy": ("http://ns.adobe.com/lightroom/1.0/", "lr", "hierarchicalSubject", "Bag"),
    "tags": ("http://www.digikam.org/ns/1.0/", "digiKam", "TagsList", "Seq"),
}
_SPACES = {"rdf": RDF, "mltta": OURS, **{prefix: uri for uri, prefix, *_ in PLACES.values()}}
_EMPTY = (
    '<?xpacket begin="\ufeff" id="W5M0MpCehiHzreSzNTczkc9d"?>\n'
    f'<x:xmpmeta xmlns:x="{META}"><rdf:RDF xmlns:rdf="{RDF}"></rdf:RDF></x:xmpmeta>\n<?xpacket end="w"?>'
).encode()
_BLANK = b"\0 \t\r\n"
#: a start tag, and its name
_TAG = re.compile(rb"<([^\s/>]+)(?:[^>\"']|\"[^\"]*\"|'[^']*')*>")
_UNDO = re.compile(rb"(?<=<mltta:undo><rdf:Seq>).*?(?=</rdf:Seq></mltta:undo>)", re.DOTALL)


@dataclass
class Node:
    """An element and its position: ``start``, then ``inner`` after the start tag, ``close`` and ``end``."""

    name: str
    attributes: dict[str, str]
    start: int = 0
    inner: int = 0
    close: int = 0
    end: int = 0
    text: str = ""
    children: list[Node] = field(default_factory=list)

    def find(self, *names: str) -> list[Node]:
        return [child for child in self.children if child.name in names]


class Packet:
    """A parsed XMP packet or sidecar file, None for a new one; ``where`` names it in errors."""

    def __init__(self, content: bytes | None, where: str):
        self.content, self._where = _EMPTY if content is None else content, where
        top = _parse(self.content, where)
        found = [
            *top.find(f"{RDF} RDF"),
            *(inner for one in top.children for inner in one.find(f"{RDF} RDF")),
        ]
        if not found:
            said = f"{where}: its XMP contains no RDF, so it takes no keywords; repair or remove it"
            raise MlttaError(said)
        self._rdf = found[0]

    @property
    def subjects(self) -> list[str]:
        """The flat keywords."""
        return self.items("subject")

    def items(self, place: str) -> list[str]:
        """All keywords of a place."""
        uri, _, name, _ = PLACES[place]
        return self._texts(f"{uri} {name}")

    def ours(self, place: str = "subject") -> list[str]:
        """The keywords that we have added to a place."""
        return self._texts(f"{OURS} added{place.title()}")

    def saved(self) -> tuple[list[str], bytes]:
        """Return what ``with_undo`` recorded, and the packet without it."""
        return self._texts(f"{OURS} undo"), _UNDO.sub(b"", self.content)

    def added(self, new: Mapping[str, Sequence[str]], ours: Mapping[str, Sequence[str]]) -> bytes:
        """Return the packet with new keywords by place, ``ours`` recorded, and room for ``with_undo``."""
        edits, fresh = [], ""
        for place, (uri, prefix, name, kind) in PLACES.items():
            if not new[place]:
                continue
            held = self._property(f"{uri} {name}")
            if held is None:
                fresh += _list(f"{prefix}:{name}", kind, new[place])
            elif held.children:
                owner = self._tag(held.children[0]).rpartition(b":")[0]
                edits.append(
                    self._into(held.children[0], _items(new[place], f"{owner.decode()}:".lstrip(":")))
                )
            else:  # bare text becomes the first item
                old = self.content[held.inner : held.close].decode() if held.text.strip() else ""
                first = f"<rdf:li>{old}</rdf:li>" if old else ""
                inner = f'<rdf:{kind} xmlns:rdf="{RDF}">{first}{_items(new[place])}</rdf:{kind}>'
                empty = (held.start, held.end, self._opened(held, inner))
                edits.append((held.inner, held.close, inner.encode()) if old else empty)
        record = "".join(
            _list(f"mltta:added{place.title()}", "Bag", words) for place, words in ours.items() if words
        )
        names = "".join(f' xmlns:{prefix}="{uri}"' for prefix, uri in _SPACES.items())
        about = next(
            (value for one in self._rdf.children for key, value in one.attributes.items() if _about(key)), ""
        )
        block = f"{fresh}{record}{_list('mltta:undo', 'Seq', ())}"
        block = f"<rdf:Description{names} rdf:about={quoteattr(about)}>{block}</rdf:Description>"
        return _spliced(self.content, [*edits, self._into(self._rdf, block)])

    def stripped(self) -> bytes | None:
        """Return the packet without our keywords; None if nothing is left."""
        edits = []
        for place, (uri, _, name, _) in PLACES.items():
            ours = self.ours(place)
            for held in (own for one in self._rdf.children for own in one.find(f"{uri} {name}")):
                items = [item for kind in held.children for item in kind.children]
                gone = [item for item in items if _text(item) in ours]
                edits += [
                    (one.start, one.end, b"") for one in ([held] if len(gone) == len(items) else gone) if gone
                ]
        edits += [
            (own.start, own.end, b"") for one in self._rdf.children for own in one.children if _is_ours(own)
        ]
        if not edits:
            return self.content
        left = Packet(_spliced(self.content, edits), self._where)
        empty = [one for one in left._rdf.children if not one.children and all(map(_about, one.attributes))]
        if len(empty) == len(left._rdf.children):
            return None
        return _spliced(left.content, [(one.start, one.end, b"") for one in empty])

    def _texts(self, name: str) -> list[str]:
        held = [own for one in self._rdf.children for own in one.find(name)]
        found = [one.attributes[name] for one in self._rdf.children if name in one.attributes]
        found += [own.text for own in held if not own.children]
        found += [_text(item) for own in held for kind in own.children for item in kind.children]
        return [text for text in found if text.strip()]

    def _property(self, name: str) -> Node | None:
        """Return the element of a property; raise an error if keywords cannot be added without losing any."""
        found = [own for one in self._rdf.children for own in one.find(name)]
        kinds = [kind for own in found for kind in own.children]
        lists = all(kind.name in (f"{RDF} Bag", f"{RDF} Seq") for kind in kinds)
        plain = all(item.name == f"{RDF} li" for kind in kinds for item in kind.children)
        beside = any(part.text.strip() for part in kinds) or any(
            own.text.strip() for own in found if own.children
        )
        simple = len(found) < 2 and len(kinds) < 2 and not any(own.attributes for own in found)
        short = any(name in one.attributes for one in self._rdf.children)
        if not (lists and plain and simple) or beside or short:
            said = "are in an unusual form that could be lost; the file was not changed"
            raise MlttaError(f"{self._where}: its keywords ({name.split()[-1]}) {said}")
        return found[0] if found else None

    def _tag(self, node: Node) -> bytes:
        found = _TAG.match(self.content, node.start)
        assert found is not None  # the parser found a tag here
        return found[1]

    def _into(self, node: Node, text: str) -> tuple[int, int, bytes]:
        """Return the edit that adds text at the end of an element."""
        if node.inner == node.end:
            return node.start, node.end, self._opened(node, text)
        return node.close, node.close, text.encode()

    def _opened(self, node: Node, text: str) -> bytes:
        """Return an empty element with a content."""
        tag = self.content[node.start : node.inner]
        return (
            tag.removesuffix(b">").removesuffix(b"/") + b">" + text.encode() + b"</" + self._tag(node) + b">"
        )


def with_undo(packet: bytes, undo: Iterable[str]) -> bytes:
    """Record in a packet that ``added`` returned how to undo it."""
    return _UNDO.sub(_items(undo).encode(), packet)


def _items(words: Iterable[str], prefix: str = "rdf:") -> str:
    return "".join(f"<{prefix}li>{escape(word)}</{prefix}li>" for word in words)


def _list(name: str, kind: str, words: Iterable[str]) -> str:
    return f"<{name}><rdf:{kind}>{_items(words)}</rdf:{kind}></{name}>"


def _text(item: Node) -> str:
    """Return the text of an item, which qualifiers may accompany."""
    nested = [item, *item.find(f"{RDF} Description")]
    return next((value.text for one in nested for value in one.find(f"{RDF} value")), item.text)


def _about(name: str) -> bool:
    return name in ("about", f"{RDF} about")


def _is_ours(node: Node) -> bool:
    return node.name.startswith(f"{OURS} ")


def _spliced(content: bytes, edits: Iterable[tuple[int, int, bytes]]) -> bytes:
    for start, end, new in sorted(edits, reverse=True):
        content = content[:start] + new + content[end:]
    return content


def _parse(content: bytes, where: str) -> Node:
    """Parse a packet to elements with their positions."""
    parser = expat.ParserCreate(namespace_separator=" ")
    lead, path = len(content) - len(content.lstrip(_BLANK)), [Node("", {})]

    def begin(name: str, attributes: dict[str, str]) -> None:
        at = lead + parser.CurrentByteIndex
        tag = _TAG.match(content, at)
        assert tag is not None  # the parser found a tag here
        path[-1].children.append(node := Node(name, attributes, at, tag.end()))
        path.append(node)

    def finish(name: str) -> None:
        node, at = path.pop(), lead + parser.CurrentByteIndex
        alone = content[node.inner - 2 : node.inner] == b"/>"
        node.close = node.inner if alone else at
        node.end = node.inner if alone else content.index(b">", at) + 1

    def words(text: str) -> None:
        path[-1].text += text

    def declared(_: str, encoding: str | None, __: int) -> None:
        if (encoding or "utf-8").lower() != "utf-8":
            raise MlttaError(f"{where}: its XMP is encoded as {encoding}, not as UTF-8; convert or remove it")

    parser.XmlDeclHandler = declared
    parser.StartElementHandler, parser.EndElementHandler, parser.CharacterDataHandler = begin, finish, words
    try:
        content.decode()
        if b"<!DOCTYPE" in content or b"<!ENTITY" in content:
            said = f"{where}: its XMP declares entities, which are not allowed; repair or remove it"
            raise MlttaError(said)
        parser.Parse(content.strip(_BLANK), True)
    except (expat.ExpatError, UnicodeDecodeError, AssertionError) as error:
        raise MlttaError(f"{where}: its XMP is damaged ({error}); repair or remove it") from None
    return path[0]
