"""Text and token ids: tokenizer, chat template, detokenizer, stop strings.

Knows nothing of requests, the scheduler or the network.
"""
