"""Settings that are read as keys or as attributes."""


class Values(dict):
    """A dict whose keys are attributes too: layout.micro_batch is layout["micro_batch"]."""

    def __getattr__(self, name):
        try:
            return self[name]
        except KeyError:
            have = ", ".join(self) or "nothing"
            raise AttributeError(f'no "{name}" here, only: {have}') from None


def values(tree):
    """TREE with every dict in it as Values."""
    if isinstance(tree, dict):
        return Values((key, values(value)) for key, value in tree.items())
    if isinstance(tree, list):
        return [values(value) for value in tree]
    return tree
