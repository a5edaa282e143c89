# SPDX-License-Identifier: Apache-2.0
"""The destinations that pods must reach, in each address family of the cluster."""

from __future__ import annotations

from e2e import fixtures
from e2e.acceptance import pods, require
from e2e.cluster import Cluster
from e2e.families import IPV6, host, of
from e2e.kubectl import until


def reach(cluster: Cluster) -> str:
    """In each family of the cluster, pods reach pods of the same node and of others, which see the
    client's own address; services by address, by name and by each node's port; and destinations
    outside, which see the node's address.
    """
    kubectl, asked = cluster.kubectl, 0
    kubectl.apply(fixtures.daemon_set("web"), fixtures.daemon_set("peer"))
    for number, family in enumerate(cluster.families):
        service = fixtures.service("web", fixtures.NODE_PORT + 1 + number)
        service["metadata"]["name"] = f"web-{family.name.lower()}"
        service["spec"] |= {"ipFamilies": [family.name], "ipFamilyPolicy": "SingleStack"}
        kubectl.apply(service)
    for app in ("web", "peer"):
        kubectl.rollout(f"daemonset/{app}")
    web, peers = pods(cluster, "web"), pods(cluster, "peer")
    for pod in (*web, *peers):
        found = [ip["ip"] for ip in pod["status"]["podIPs"]]
        require(len(found) == len(cluster.families), f"{pod['metadata']['name']} has the addresses {found}")
    for number, family in enumerate(cluster.families):
        port = fixtures.NODE_PORT + 1 + number
        name = f"web-{family.name.lower()}"
        service = kubectl.json("get", "service", name)["spec"]["clusterIP"]
        require((":" in service) == (family is IPV6), f"the {family.name} service has the address {service}")
        nodes = [of(family, node.addresses) for node in cluster.nodes]
        outside = family.address(1)
        with cluster.lan.echo(outside) as url:
            for source in peers:
                own = of(family, [ip["ip"] for ip in source["status"]["podIPs"]])
                at = source["spec"]["nodeName"]
                targets = {
                    f"http://{host(of(family, [ip['ip'] for ip in pod['status']['podIPs']]))}:8080/": pod for pod in web
                }
                urls = [*targets, f"http://{host(service)}/", f"http://{name}.default.svc.cluster.local/", url]
                urls += [f"http://{host(node)}:{port}/" for node in nodes]

                def answers(source=source, urls=urls) -> str:
                    done = kubectl.inside(source["metadata"]["name"], "/testpod", "get", *urls, check=False)
                    return done.stdout if done.returncode == 0 else ""

                # kube-proxy learns of ready pods a moment after the API server
                said = until(f"{family.name}: everything answers a pod on {at}", answers, 120).splitlines()
                asked += len(urls)
                for target, pod in targets.items():
                    line = next(line for line in said if line.startswith(target))
                    require(pod["metadata"]["name"] in line, f"another pod answered: {line}")
                    require(own in line, f"{family.name}: the address was changed on the way: {line}")
                line = next(line for line in said if line.startswith(url))
                node = next(node for node in cluster.nodes if node.name == at)
                require(of(family, node.addresses) in line, f"outside the pod is not its node: {line}")
        for node in nodes:
            answer = cluster.lan.run("curl", "-sS", "--max-time", "10", f"http://{host(node)}:{port}/")
            require("web-" in answer, f"port {port} of {node}: {answer!r}")
            asked += 1
    names = " and ".join(family.name for family in cluster.families)
    return f"{names}: {asked} requests, to pods of the same and of other nodes, services, names, each node, and outside"
