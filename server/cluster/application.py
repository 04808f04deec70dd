"""The application for `serve run` and `serve deploy`.

    serve run server.cluster.application:hearth_app bundle=/srv/gemma3-270m threads=4 replicas=2

Its arguments are the settings of `hearth serve` by their names, and the fields of `Scale`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ray import serve
from ray.serve.config import AutoscalingConfig, BackpressureConfig, RequestRouterConfig

from hearthd.bundle import ArraysManifest, read_manifest
from hearthd.server.cluster.bundles import BundleFolders
from hearthd.server.cluster.front import FRONT
from hearthd.server.cluster.model_replica import ModelReplica
from hearthd.server.cluster.router import REPORT_SECONDS, CachedBlocksRouter
from hearthd.server.open_service import bundle_folders, reject_language_only
from hearthd.server.setting_files import adapter_folders
from hearthd.server.settings import BadSettings, Settings, load

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ray.serve import Application

    from hearthd.server.cluster.bundles import Bundle, Bundles

# What Ray does in place of `hearth serve`; the Serve config has options for these.
_RAYS_SETTINGS = ("host", "port", "tls_cert", "tls_key", "client_timeout")
# Streams that one front holds at a time; Ray's default is 5.
_MAX_STREAMS = 4096


@dataclass(frozen=True, kw_only=True)
class Scale:
    """How many processes serve.

    min_replicas, max_replicas  model replicas; Ray starts and stops them by their requests
    up_delay, down_delay        seconds of more, or fewer, requests before Ray does so
    fronts                      processes that answer HTTP
    max_bundles                 bundles that one replica may have loaded at a time
    front_resources             custom resources of Ray that a front takes: it runs where they are
    """

    min_replicas: int = 1
    max_replicas: int = 1
    up_delay: float = 5.0
    down_delay: float = 600.0
    fronts: int = 1
    max_bundles: int = 2
    front_resources: Mapping[str, float] = field(default_factory=dict)


def hearth_app(args: Mapping[str, Any]) -> Application:
    """The application for a bundle; raises BadSettings or BundleError.

    `args` are settings of `hearth serve`, where `bundle` may be a list of folders, and the
    arguments `replicas` ("4", or "1-4" to scale between both), `up_delay`, `down_delay`, `fronts`
    and `max_bundles`: see Scale.
    """
    flags = dict(args)
    scale = _scale(flags)
    loaded = load(flags)
    for name in _RAYS_SETTINGS:
        if name in loaded.origins:
            raise BadSettings(f"{name}: not valid with Ray; set it in the Serve config")
    if "lora_dir" in loaded.origins:
        raise BadSettings("lora_dir: not valid with Ray; name the adapters in lora")
    settings = loaded.settings
    if settings.threads is None:
        raise BadSettings("threads: missing; give the CPU threads of one replica")
    lora = tuple(f"{folder.resolve()}={name}" for name, folder in adapter_folders(settings).items())
    opener = BundleFolders(settings.model_copy(update={"lora": lora}))
    folders = list(bundle_folders(settings))
    for folder in folders:
        if isinstance(read_manifest(folder), ArraysManifest):
            reject_language_only(loaded, folder)
    if settings.lora and len(folders) > 1:
        raise BadSettings("lora: only valid with one bundle")
    bundles = [opener.describe(folder) for folder in folders]
    if len({bundle.name for bundle in bundles}) < len(bundles):
        raise BadSettings("bundle: several bundles need folders with different names, and no alias")
    return application(opener, settings, bundles, scale)


def application(
    opener: Bundles, settings: Settings, bundles: Sequence[Bundle], scale: Scale
) -> Application:
    """The application for bundles that `opener` opens."""
    slots = max(bundle.slots for bundle in bundles)
    largest = sorted((bundle.memory for bundle in bundles), reverse=True)[: scale.max_bundles]
    model = serve.deployment(
        ModelReplica,
        name="Model",
        ray_actor_options={"num_cpus": settings.threads, "memory": sum(largest)},
        max_ongoing_requests=slots,
        max_queued_requests=max(1, settings.queue_limit),
        backpressure_config=BackpressureConfig(status_code=429, retry_after_s=1),
        graceful_shutdown_timeout_s=settings.shutdown_timeout,
        autoscaling_config=AutoscalingConfig(
            min_replicas=scale.min_replicas,
            max_replicas=scale.max_replicas,
            target_ongoing_requests=slots,
            upscale_delay_s=scale.up_delay,
            downscale_delay_s=scale.down_delay,
        ),
        request_router_config=RequestRouterConfig(
            request_router_class=CachedBlocksRouter,
            request_routing_stats_period_s=REPORT_SECONDS,
            initial_backoff_s=0.005,
            max_backoff_s=0.02,
        ),
    )
    front = serve.deployment(
        FRONT,
        name="Front",
        num_replicas=scale.fronts,
        ray_actor_options={"num_cpus": 0, "resources": dict(scale.front_resources)},
        max_ongoing_requests=_MAX_STREAMS,
        max_surge_percent=100,  # the new fronts accept requests before the old ones stop
        graceful_shutdown_timeout_s=settings.shutdown_timeout,
    )
    replicas = model.bind(opener, settings, bundles, max_bundles=scale.max_bundles)
    return front.bind(opener, settings, bundles, replicas)


def _scale(flags: dict[str, Any]) -> Scale:
    """Take the arguments of Scale out of `flags`; raises BadSettings."""
    least, _, most = str(flags.pop("replicas", 1)).partition("-")
    up_delay = flags.pop("up_delay", Scale.up_delay)
    down_delay = flags.pop("down_delay", Scale.down_delay)
    fronts = flags.pop("fronts", Scale.fronts)
    max_bundles = flags.pop("max_bundles", Scale.max_bundles)
    try:
        scale = Scale(
            min_replicas=int(least),
            max_replicas=int(most or least),
            up_delay=float(up_delay),
            down_delay=float(down_delay),
            fronts=int(fronts),
            max_bundles=int(max_bundles),
        )
    except ValueError as error:
        raise BadSettings(f"an argument of the cluster is not a number: {error}") from None
    if not 0 <= scale.min_replicas <= max(1, scale.min_replicas) <= scale.max_replicas:
        raise BadSettings("replicas: expected a number, or two such as 1-4, the second at least 1")
    if scale.fronts < 1 or scale.max_bundles < 1:
        raise BadSettings("fronts, max_bundles: expected at least 1")
    return scale
