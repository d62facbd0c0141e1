"""llama.cpp's own HTTP server, as the xllamacpp package carries it.

The n-gram modes run with llama.cpp's defaults. Prompts are not cached between requests when the
request says `"cache_prompt": false`.
"""

from __future__ import annotations

import signal
from pathlib import Path

from peers.engine import unknown_mode

CONTEXT = 8192
MODES = {
    "plain": None,
    "ngram-simple": "COMMON_SPECULATIVE_TYPE_NGRAM_SIMPLE",
    "ngram-mod": "COMMON_SPECULATIVE_TYPE_NGRAM_MOD",
}


def serve(mode: str, model: Path, threads: int, port: int) -> None:
    """On the loopback, until the process ends. Raises `ImportError` without xllamacpp."""
    import xllamacpp

    if mode not in MODES:
        raise unknown_mode(mode, list(MODES))
    params = xllamacpp.CommonParams()
    params.model.path = str(model)
    params.n_ctx = CONTEXT
    params.n_parallel = 1
    params.fit_params = False
    params.port = port
    params.hostnames = ["127.0.0.1"]
    params.cpuparams.n_threads = threads
    params.cpuparams_batch.n_threads = threads
    params.verbosity = 1
    name = MODES[mode]
    if name is not None:
        params.speculative.types = [getattr(xllamacpp.common_speculative_type, name)]
    print(f"xllamacpp {xllamacpp.__version__}: {xllamacpp.get_system_info()}", flush=True)
    server = xllamacpp.Server(params)
    print(f"listening on {server.listening_address}", flush=True)
    signal.pause()
