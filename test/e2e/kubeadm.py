# SPDX-License-Identifier: Apache-2.0
"""kubeadm's configuration: the one in docs/kubernetes.md, and additions for this small machine."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from e2e import settings
from e2e.families import host

API = "kubeadm.k8s.io/v1beta4"
SOCKET = "unix:///run/containerd/containerd.sock"
TOKEN = "abcdef.0123456789abcdef"
CERTIFICATE_KEY = "6e657463726171" * 4 + "6b657973"
"""The key with which the first control-plane node encrypts its certificates for the others: 32
bytes, in hexadecimal. It may be public, like the token, because the network is private.
"""
GATEWAY = "https://127.0.0.1:23790"
"""The address of etcd-monitor on a control-plane node."""

PATIENCE = {
    "controlPlaneComponentHealthCheck": "10m0s",
    "kubeletHealthCheck": "10m0s",
    "tlsBootstrap": "10m0s",
    "discovery": "10m0s",
    "kubernetesAPICall": "5m0s",
    "etcdAPICall": "10m0s",
}
"""kubeadm's timeouts, long enough for a busy machine with one core."""


def arguments(**flags: str) -> list[dict[str, str]]:
    """Extra arguments of a component, in kubeadm's form."""
    return [{"name": name.replace("_", "-"), "value": value} for name, value in flags.items()]


def registration(name: str, addresses: Sequence[str], *, tainted: bool = False) -> dict[str, Any]:
    """The registration of a node. If ``tainted``, the node has kubeadm's control-plane taint."""
    return {
        "name": name,
        "criSocket": SOCKET,
        "imagePullPolicy": "Never",
        **({} if tainted else {"taints": []}),
        "kubeletExtraArgs": arguments(node_ip=",".join(addresses)),
    }


def init(
    name: str,
    addresses: Sequence[str],
    pods: Sequence[str],
    services: Sequence[str],
    *,
    gateway: bool,
    proxy_mode: str,
    endpoint: str | None = None,
    tainted: bool = False,
) -> str:
    """The configuration of the first control-plane node. ``pods`` and ``services`` are prefixes,
    the primary family's first. With several API servers, ``endpoint`` is the address of their load
    balancer.
    """
    begin = {
        "apiVersion": API,
        "kind": "InitConfiguration",
        "bootstrapTokens": [{"token": TOKEN, "ttl": "24h0m0s"}],
        "localAPIEndpoint": {"advertiseAddress": addresses[0], "bindPort": 6443},
        "nodeRegistration": registration(name, addresses, tainted=tainted),
        "timeouts": PATIENCE,
    }
    # Notice a lost node, and replace its pods, after seconds instead of minutes.
    api_server = {"default_not_ready_toleration_seconds": "10", "default_unreachable_toleration_seconds": "10"}
    if gateway:
        api_server["etcd_servers"] = GATEWAY
    etcd: dict[str, Any] = {"imageTag": settings.etcd()}
    several: dict[str, Any] = {}
    if endpoint:
        several["controlPlaneEndpoint"] = f"{host(endpoint)}:6443"
        begin["certificateKey"] = CERTIFICATE_KEY
        # On a busy machine members hear late of each other, which would cause elections.
        etcd["extraArgs"] = arguments(heartbeat_interval="300", election_timeout="3000")
    cluster = {
        "apiVersion": API,
        "kind": "ClusterConfiguration",
        "kubernetesVersion": settings.KUBERNETES,
        "networking": {"podSubnet": ",".join(pods), "serviceSubnet": ",".join(services)},
        "apiServer": {"extraArgs": arguments(**api_server)},
        "controllerManager": {"extraArgs": arguments(node_monitor_grace_period="20s")},
        "etcd": {"local": etcd},
        "dns": {"imageTag": settings.COREDNS},
        **several,
    }
    kubelet: dict[str, Any] = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": "::" if any(":" in address for address in addresses) else "0.0.0.0",  # of both families
        "cgroupDriver": "cgroupfs",
        "failCgroupV1": False,
        "failSwapOn": False,
        "maxPods": 200,
        "serializeImagePulls": False,
        "imageGCHighThresholdPercent": 100,  # an image that kubelet deletes cannot be pulled again
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        "resolvConf": "/etc/resolv.conf",
    }
    if endpoint:
        # Restart a container that is killed repeatedly at once. By default, the delay doubles each
        # time.
        kubelet["featureGates"] = {"KubeletCrashLoopBackOffMax": True}
        kubelet["crashLoopBackOff"] = {"maxContainerRestartPeriod": "2s"}
    proxy = {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": proxy_mode,
        "conntrack": {
            "maxPerCore": 0,
            "min": 0,
            "tcpEstablishedTimeout": "0s",
            "tcpCloseWaitTimeout": "1h0m0s",
        },  # 0: sysctls of the machine, not of a namespace
    }
    return "\n---\n".join(json.dumps(document) for document in (begin, cluster, kubelet, proxy))


def join(name: str, addresses: Sequence[str], server: str, *, control_plane: bool = False) -> str:
    """The configuration of a worker, or of another control-plane node."""
    # safe, because the network belongs to this command
    token = {"apiServerEndpoint": f"{host(server)}:6443", "token": TOKEN, "unsafeSkipCAVerification": True}
    joining: dict[str, Any] = {
        "apiVersion": API,
        "kind": "JoinConfiguration",
        "discovery": {"bootstrapToken": token},
        "nodeRegistration": registration(name, addresses),
        "timeouts": PATIENCE,
    }
    if control_plane:
        joining["controlPlane"] = {
            "localAPIEndpoint": {"advertiseAddress": addresses[0], "bindPort": 6443},
            "certificateKey": CERTIFICATE_KEY,
        }
    return json.dumps(joining)


def upgrade(version: str) -> str:
    """The configuration of ``kubeadm upgrade apply``, and of ``kubeadm upgrade node``."""
    # The preflight checks are ignored as with init, and the images are already on the nodes.
    both = {"ignorePreflightErrors": ["all"], "imagePullPolicy": "Never"}
    return json.dumps(
        {
            "apiVersion": API,
            "kind": "UpgradeConfiguration",
            "apply": {"kubernetesVersion": version, "forceUpgrade": True, **both},
            "node": both,
            "timeouts": {**PATIENCE, "upgradeManifests": "10m0s"},
        }
    )
