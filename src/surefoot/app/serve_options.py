"""What `surefoot serve` was asked for: made from its flags, carried to the server's life."""

from __future__ import annotations

from dataclasses import dataclass

from surefoot.app.kv_plan import StorageOptions
from surefoot.app.options import RunOptions
from surefoot.app.server_lookup import LookupOptions
from surefoot.config import SchedulerConfig
from surefoot.server.limits import ServerConfig


@dataclass(frozen=True, slots=True)
class Serving:
    """Checked."""

    server: ServerConfig
    options: RunOptions
    scheduling: SchedulerConfig
    aliases: tuple[str, ...] = ()
    lookup: LookupOptions | None = None
    storage: StorageOptions | None = None
