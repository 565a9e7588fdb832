"""The user's own forward, run on blocks: tensors that know of which whole they are a part."""
