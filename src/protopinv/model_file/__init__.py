"""Our own file: safetensors with a JSON header, promised in docs/format.md.

Nothing in it is executed when it is read. A summary of a file needs no torch.
"""
