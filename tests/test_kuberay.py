"""The Serve config and the manifest for KubeRay name what exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from hearthd.server.settings import Settings

ROOT = Path(__file__).parent.parent
SERVICE = yaml.safe_load((ROOT / "kuberay/rayservice.yaml").read_text(encoding="utf-8"))["spec"]
CONFIGS = {
    "serve.yaml": yaml.safe_load((ROOT / "kuberay/serve.yaml").read_text(encoding="utf-8")),
    "rayservice.yaml": yaml.safe_load(SERVICE["serveConfigV2"]),
}
OF_SCALE = {"replicas", "fronts", "max_bundles"}
each_config = pytest.mark.parametrize("name", CONFIGS)


def application(name: str) -> dict[str, Any]:
    (first,) = CONFIGS[name]["applications"]
    return dict(first)


@each_config
def test_the_application_exists(name: str) -> None:
    module, function = application(name)["import_path"].split(":")
    tree = ast.parse((ROOT / f"{module.replace('.', '/')}.py").read_text(encoding="utf-8"))
    assert function in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


@each_config
def test_its_arguments_are_settings(name: str) -> None:
    args = application(name)["args"]
    assert args.keys() - OF_SCALE <= Settings.model_fields.keys()
    Settings(**{key: value for key, value in args.items() if key not in OF_SCALE})
    assert args["threads"]


@each_config
def test_its_deployments_exist(name: str) -> None:
    source = (ROOT / "server/cluster/application.py").read_text(encoding="utf-8")
    named = set(re.findall(r'name="(\w+)"', source))
    assert {deployment["name"] for deployment in application(name)["deployments"]} <= named


def test_a_node_for_replicas_has_the_threads_of_one() -> None:
    threads = application("rayservice.yaml")["args"]["threads"]
    (group,) = SERVICE["rayClusterConfig"]["workerGroupSpecs"]
    pod = group["template"]["spec"]
    assert int(pod["containers"][0]["resources"]["limits"]["cpu"]) >= threads
    assert pod["securityContext"]["runAsUser"] == 10001, "the user of docker/Dockerfile"
    assert pod["terminationGracePeriodSeconds"] > Settings.model_fields["shutdown_timeout"].default
