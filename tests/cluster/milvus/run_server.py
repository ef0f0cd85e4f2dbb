"""Run a Milvus server until its standard input is closed: `run_server.py lite|milvus FOLDER PORT [forget]`.

The process that started it holds the other end of the input: when that process ends, the server stops; with `forget`,
its folder is deleted.
"""

import os
import shutil
import signal
import socket
import sys
import time
from pathlib import Path


def lite(folder: str, port: int) -> None:
    from milvus_lite.adapter.grpc.server import start_server_in_thread

    server, database, _ = start_server_in_thread(folder, port=port)
    _tell(os.getpid())
    sys.stdin.read()
    server.stop(grace=0).wait()
    database.close()


def milvus(folder: str, port: int) -> None:
    from milvus import MilvusServer

    # The server needs a dozen ports and looks for free ones; another process may be faster.
    for attempt in range(3):
        server = MilvusServer(_configuration(folder, port), wait_for_started=False)
        server.start()
        answered = _answers(server)
        if answered or attempt == 2:
            break
        server.stop()
    _tell(server.server_proc.pid if answered else 0)
    sys.stdin.read()
    server.stop()


def _configuration(folder: str, port: int):
    """Return the default configuration with a free peer port for the embedded etcd: several servers may run."""
    from milvus import MilvusServerConfig

    client, peer = free_port(), free_port()
    place = Path(folder) / "etcd.yaml"
    place.parent.mkdir(parents=True, exist_ok=True)
    addresses = {"client": f"http://127.0.0.1:{client}", "peer": f"http://127.0.0.1:{peer}"}
    place.write_text(
        f"name: default\ndata-dir: {folder}/data/etcd.data\n"
        f"listen-client-urls: {addresses['client']}\nadvertise-client-urls: {addresses['client']}\n"
        f"listen-peer-urls: {addresses['peer']}\ninitial-advertise-peer-urls: {addresses['peer']}\n"
        f"initial-cluster: default={addresses['peer']}\n"
    )
    configuration = MilvusServerConfig(data_dir=folder, proxy_port=port, etcd_port=client)
    configuration.template_text = configuration.template_text.replace(
        "  use:\n    embed: true", f"  config:\n    path: {place}\n  use:\n    embed: true", 1
    )
    return configuration


def free_port() -> int:
    """Return a port that is free at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _answers(server) -> bool:
    import urllib.error
    import urllib.request

    until = time.monotonic() + 60
    while time.monotonic() < until and server.server_proc.poll() is None:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{server.webservice_port}/healthz", timeout=5) as answer:
                if b"OK" in answer.read():
                    return True
        except (urllib.error.URLError, OSError):
            pass
        time.sleep(0.1)
    return False


def _tell(process: int) -> None:
    """Print the process id of the server; 0: it does not start."""
    sys.stdout.write(f"{process}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the tests, which end the server
    {"lite": lite, "milvus": milvus}[sys.argv[1]](sys.argv[2], int(sys.argv[3]))
    if "forget" in sys.argv[4:]:
        shutil.rmtree(sys.argv[2], ignore_errors=True)
