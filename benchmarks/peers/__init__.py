"""Other engines behind one HTTP form, each imported only in a server process of its own.

An engine is `open_engine(name, mode, model, threads)`; what it gives is served by `peers.serving`,
except where the engine brings a server (llama.cpp through xllamacpp).
"""
