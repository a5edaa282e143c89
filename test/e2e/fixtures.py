# SPDX-License-Identifier: Apache-2.0
"""The workloads that the tests run in the cluster."""

from __future__ import annotations

from typing import Any

from e2e import cluster_images

NODE_PORT = 30080


def template(app: str, *, probe: bool = True) -> dict[str, Any]:
    """A pod that answers HTTP."""
    container: dict[str, Any] = {
        "name": "testpod",
        "image": cluster_images.TESTPOD,
        "imagePullPolicy": "Never",
        "args": ["serve"],
        "ports": [{"containerPort": 8080}],
        "securityContext": {"allowPrivilegeEscalation": False},
    }
    if probe:
        container["readinessProbe"] = {"httpGet": {"path": "/", "port": 8080}, "periodSeconds": 2, "timeoutSeconds": 5}
    return {
        "metadata": {"labels": {"app": app}},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "containers": [container],
        },
    }


def daemon_set(app: str) -> dict[str, Any]:
    """A pod on each node."""
    spec = {"selector": {"matchLabels": {"app": app}}, "template": template(app)}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": app, "namespace": "default"},
        "spec": spec,
    }


def deployment(app: str, replicas: int, *, probe: bool = True) -> dict[str, Any]:
    """A number of pods on any nodes."""
    spec = {"replicas": replicas, "selector": {"matchLabels": {"app": app}}, "template": template(app, probe=probe)}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": app, "namespace": "default"},
        "spec": spec,
    }


def service(app: str, node_port: int | None = None) -> dict[str, Any]:
    """A service for the pods of ``app``, on each node's ``node_port`` too."""
    port: dict[str, Any] = {"port": 80, "targetPort": 8080}
    if node_port is not None:
        port["nodePort"] = node_port
    kind = "ClusterIP" if node_port is None else "NodePort"
    spec = {"selector": {"app": app}, "type": kind, "ports": [port]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": app, "namespace": "default"}, "spec": spec}
