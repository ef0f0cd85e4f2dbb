"""Settings of a server: what it serves, who may reach it, and under which names."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import TypeAdapter

LOOPBACK_HOSTS = ("127.0.0.1", "localhost", "[::1]")


@dataclass(frozen=True, kw_only=True)
class ServerSettings:
    """Settings of a server; every process of it reads them from its environment."""

    library: str = ""  # folder of the library
    milvus: str = ""  # address of a Milvus server that has the collection, instead of a library
    collection: str = ""
    model: str | None = None  # the network of the collection's vectors; None: the bundled one
    workers: int = 1  # number of processes

    hosts: tuple[str, ...] = LOOPBACK_HOSTS  # host names that requests may use; empty: any
    any_address: bool = False  # requests may also use an IP address as the host
    root_path: str = ""  # path under which a proxy shows the server, as in "/eqkin"
    cors: tuple[str, ...] = ()  # origins whose scripts may use the HTTP interface; "*": any
    frames: tuple[str, ...] = ()  # origins that may show the page in a frame
    token: str = ""  # what clients must know
    read_only: bool = False  # refuse judgements and drafts
    proxies: tuple[str, ...] = ()  # addresses and networks of proxies whose X-Forwarded-* headers are believed

    def to_json(self) -> str:
        """Return the settings as JSON."""
        return _ADAPTER.dump_json(self).decode()

    @classmethod
    def from_json(cls, text: str) -> ServerSettings:
        """Return the settings that `to_json` wrote."""
        return _ADAPTER.validate_json(text)


_ADAPTER = TypeAdapter(ServerSettings)
LOOPBACK = ServerSettings()  # for this machine only
