"""The cluster's DNS: names of headless Services and of the pods behind them, from EndpointSlices.

`resolver.py`, with the variables of `control_plane`. Other names do not exist.
"""

from __future__ import annotations

import os
import ssl
import time
from pathlib import Path

import httpx
from dnslib import QTYPE, RCODE, RR, A, DNSRecord
from dnslib.server import BaseResolver, DNSHandler, DNSLogger, DNSServer

DOMAIN = ("svc", "cluster", "local")


class Resolver(BaseResolver):  # type: ignore[misc]
    def __init__(self, api: httpx.Client) -> None:
        self.api = api
        self.known: dict[tuple[str, str], dict[str, list[str]]] = {}

    def resolve(self, request: DNSRecord, handler: DNSHandler) -> DNSRecord:
        reply = request.reply()
        labels = tuple(str(request.q.qname).lower().rstrip(".").split("."))
        hosts: dict[str, list[str]] = {}
        if labels[-3:] == DOMAIN and len(labels) in (5, 6):
            hosts = self.hosts(labels[-4], labels[-5])
        found = hosts.get(labels[0] if len(labels) == 6 else "")
        if not found:
            reply.header.rcode = RCODE.NXDOMAIN
        elif request.q.qtype == QTYPE.A:
            reply.add_answer(
                *(RR(request.q.qname, QTYPE.A, rdata=A(each), ttl=1) for each in found)
            )
        return reply

    def hosts(self, namespace: str, service: str) -> dict[str, list[str]]:
        """The addresses of a Service by host name, all of them by the empty one.

        While the API server does not answer these are the ones it last told, as with CoreDNS.
        """
        path = f"apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"
        selector = {"labelSelector": f"kubernetes.io/service-name={service}"}
        try:
            slices = self.api.get(path, params=selector).raise_for_status().json()["items"]
        except httpx.HTTPError:
            return self.known.get((namespace, service), {})
        hosts: dict[str, list[str]] = {}
        for endpoint in (each for part in slices for each in part.get("endpoints") or ()):
            if endpoint["conditions"].get("ready"):
                for name in {"", endpoint.get("hostname", "")}:
                    hosts.setdefault(name, []).extend(endpoint["addresses"])
        self.known[namespace, service] = hosts
        return hosts


def main() -> None:
    folder, number = Path(os.environ["KUBE_DIR"]), os.environ["KUBE_ID"]
    trusted = ssl.create_default_context(cafile=str(folder / "pki/ca.crt"))
    headers = {"Authorization": f"Bearer {(folder / 'admin.token').read_text().strip()}"}
    url = f"https://198.19.{number}.1"
    api = httpx.Client(base_url=url, headers=headers, verify=trusted, timeout=1, trust_env=False)
    address = f"198.18.{number}.254"
    server = DNSServer(Resolver(api), port=53, address=address, logger=DNSLogger("error"))
    server.start_thread()
    # It ends with what started it, however that ended.
    parent = os.getppid()
    while server.isAlive() and os.getppid() == parent:
        time.sleep(1)


if __name__ == "__main__":
    main()
