"""surefoot: an LLM inference server whose speculative decoding is safe to leave on."""

__version__ = "0.1.0"
